"""Write down the database of a release: ``python -m tests.upgrade.record NAME``, with the source of that release.

It keeps the SQL of the release, and the rows that its engine made, killed in the middle of its work. To be run once
for a release whose schema is a new one, with its ``src`` in PYTHONPATH; what is there already stays as it is.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import perdure
from perdure import Engine
from perdure.testing.postgres import Server, binaries
from tests.upgrade import flow

FOLDER = Path(__file__).parent / "released"
LIMIT = 30.0


async def live(url: str) -> None:
    """One of each kind of process, on its way as far as it comes; then this OS process is killed."""
    engine = Engine(url, work=True, workflows=flow.WORKFLOWS)
    await engine.__aenter__()
    await engine.queues.limit("upgrade", concurrency=1, who="Ann")
    listener = await engine.start(flow.listener.options(key="listener"))
    renewed = await engine.start(flow.renewed.options(key="renewed"), 2, [])
    for handle in (listener, renewed):
        for name in ("Ann", "Ben"):
            await handle.signal("name", name, key=name)
    await renewed.signal("go")
    held = await engine.start(flow.listener.options(key="held"))
    parent = await engine.start(flow.parent.options(key="parent"))
    await engine.start(flow.trip.options(key="trip"))
    for what in ("one", "two"):
        await engine.start(flow.task.options(key=what), what)
    await (await engine.start(flow.plain.options(key="plain"), "done")).result(LIMIT)
    await asyncio.sleep(2.0)  # all that was sent has been heard
    await held.hold(who="Ann", why="to be seen")
    await engine.start(flow.sleeper.options(key="sleeper"))
    await engine.start(flow.stepping.options(key="stepping"))
    await asyncio.sleep(1.0)
    await held.signal("go")
    assert (await parent.status()).status == "running"
    os.kill(os.getpid(), signal.SIGKILL)


async def late(url: str) -> None:
    """Signals that no worker has heard."""
    async with Engine(url, migrate=True) as engine:
        handle = await engine.handle(flow.listener, "listener")
        for name, value in (("name", "Cid"), ("go", None), ("name", "Dan")):
            await handle.signal(name, value)


def lived(url: str) -> None:
    """Let another OS process live through that, and die; then another one is there for a moment."""
    environment = {**os.environ, flow.BLOCKED: "1"}
    me = [sys.executable, "-m", "tests.upgrade.record"]
    ended = subprocess.run([*me, "live", url], env=environment, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended
    subprocess.run([*me, "late", url], check=True, timeout=60)


def former(rows: str) -> str:
    """The rows as if that had been two years ago: no machine that reads them has a clock so far behind."""
    rows = re.sub(r"\b1[789]\d{14}\b", lambda at: str(int(at[0]) - 731 * 86_400 * 1_000_000), rows)
    return re.sub(r"'20(\d\d)(?=-\d\d-\d\d )", lambda at: f"'20{int(at[1]) - 2}", rows)


def record_sqlite(folder: Path) -> None:
    """The rows of a SQLite file."""
    with tempfile.TemporaryDirectory() as place:
        lived(f"sqlite:///{place}/old.db")
        connection = sqlite3.connect(f"{place}/old.db")
        lines = [line for line in connection.iterdump() if line.startswith("INSERT")]
        connection.close()
    (folder / "rows_sqlite.sql").write_text(former("\n".join(lines) + "\n"))


def record_postgres(folder: Path) -> None:
    """The rows of a PostgreSQL schema."""
    with Server(()) as server:
        url = server.fresh_database()
        lived(url)
        dump = [str(binaries() / "pg_dump"), "--data-only", "--inserts", "--schema=perdure", url]
        text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.split("\n") if line.startswith("INSERT") and "perdure.migration" not in line]
    (folder / "rows_postgres.sql").write_text(former("\n".join(lines) + "\n"))


def record(name: str) -> None:
    """Keep all of a release, under a name."""
    folder = FOLDER / name
    folder.mkdir(parents=True)
    shutil.copytree(Path(perdure.__file__).parent / "store" / "sql", folder / "sql")
    record_sqlite(folder)
    record_postgres(folder)


if __name__ == "__main__":
    if sys.argv[1] in ("live", "late"):
        asyncio.run({"live": live, "late": late}[sys.argv[1]](sys.argv[2]))
    else:
        record(sys.argv[1])
