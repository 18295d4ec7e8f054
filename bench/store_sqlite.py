"""How fast the SQLite store is by itself: records a second, one idle commit, bytes of a finished process.

Run it with ``python bench/store_sqlite.py [folder]``; the folder should lie on the disk that is to be measured.
A client of 2,000 processes in flight sends what has gathered while the last batch was written, at most 1,000 records.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from perdure.clock import SECOND, Computer
from perdure.kernel.commit import Commit, Start
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import WorkerRow
from perdure.store.base import Search
from perdure.store.sqlite.store import SqliteStore

T = TypeVar("T")
LEASE = 15 * SECOND
machine = Computer()


def fresh(worker: bytes, now: int, key: str | None = None) -> Start:
    """A process started as owned, without events."""
    process = Process(
        machine.new_id(), "order", key, b'["A-17",1]', token=1, owner=worker, code="1", created_at=now, opened_at=now
    )
    return Start(process, (), LEASE)


def ending(row: Process, now: int) -> Commit:
    """The commit that holds the result of the only step and the end."""
    events = (
        Event(1, 1, EventType.STEP_COMPLETED, now, "1", "charge", b'"r-00000001"', b"8 bytes!"),
        Event(2, 0, EventType.COMPLETED, now),
    )
    after = replace(
        row, status=Status.COMPLETED, version=row.version + 1, owner=None, due_at=None, events=2, result=b'"r-0000001"'
    )
    return Commit(row.token, row.version, after, events)


def stepping(row: Process, now: int) -> Commit:
    """A commit with one event of a process that goes on."""
    number = row.events + 1
    event = Event(number, number, EventType.STEP_COMPLETED, now, str(number), "charge", b'"r-00000001"', b"8 bytes!")
    return Commit(row.token, row.version, replace(row, version=row.version + 1, events=number), (event,), (), LEASE)


async def open_store(folder: Path, name: str) -> tuple[SqliteStore, bytes]:
    """A store on an empty file, and a worker enlisted in it."""
    store = SqliteStore(f"sqlite:///{folder / name}")
    await store.open()
    worker = machine.new_id()
    await store.enlist(WorkerRow(worker, "bench"), 3600 * SECOND)
    return store, worker


async def one_step(folder: Path, number: int, flight: int, batch: int) -> tuple[float, float]:
    """One-step processes a second (a start as owned, a commit that ends it), and the bytes of one in the file."""
    store, worker = await open_store(folder, "one_step.db")
    now = await store.now()
    started = ended = 0
    ready: list[Process] = []
    begun = time.perf_counter()
    while ended < number:
        room = min(batch, flight - len(ready), number - started)
        starts = [fresh(worker, now) for _ in range(room)]
        commits = [ending(row, now) for row in ready[:batch]]
        started += room
        writes = []
        if starts:
            writes.append(store.start(starts))
        if commits:
            writes.append(store.commit(commits))
        answers = await asyncio.gather(*writes)
        now = answers[0][0].now
        del ready[: len(commits)]
        ended += len(commits)
        ready += [start.process for start in starts]
    seconds = time.perf_counter() - begun
    assert (await store.count(Search()))[0][2] == number
    await store.close()
    return number / seconds, (folder / "one_step.db").stat().st_size / number


async def steps(folder: Path, processes: int, each: int, batch: int) -> float:
    """Commits with one event a second."""
    store, worker = await open_store(folder, f"steps_{machine.new_id().hex()}.db")
    now = await store.now()
    rows: list[Process] = []
    for at in range(0, processes, 1000):
        starts = [fresh(worker, now) for _ in range(min(1000, processes - at))]
        await store.start(starts)
        rows += [start.process for start in starts]
    begun = time.perf_counter()
    for _ in range(each):
        for at in range(0, processes, batch):
            commits = [stepping(row, now) for row in rows[at : at + batch]]
            await store.commit(commits)
            rows[at : at + batch] = [commit.after for commit in commits]
    seconds = time.perf_counter() - begun
    await store.close()
    return processes * each / seconds


async def idle(folder: Path, number: int) -> tuple[float, float]:
    """Milliseconds of one commit on an idle system, and of a bare INSERT and COMMIT through the same driver.

    They take turns by the hundred: one by one, each would pay for what the other left in the file system's journal.
    """
    store, worker = await open_store(folder, "idle.db")
    now = await store.now()
    start = fresh(worker, now)
    await store.start([start])
    row = start.process
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute("CREATE TABLE t (id BLOB PRIMARY KEY, text TEXT) WITHOUT ROWID")
    ours, theirs = [], []
    for turn in range(number * 2):
        begun = time.perf_counter()
        if turn // 100 % 2:
            bare.execute("BEGIN IMMEDIATE")
            bare.execute("INSERT INTO t VALUES (?, ?)", (machine.new_id(), "x" * 60))
            bare.execute("COMMIT")
            theirs.append(time.perf_counter() - begun)
        else:
            commit = stepping(row, now)
            await store.commit([commit])
            ours.append(time.perf_counter() - begun)
            row = commit.after
    bare.close()
    await store.close()
    return statistics.median(ours) * 1000, statistics.median(theirs) * 1000


async def busy_steps(folder: Path, processes: int, each: int, batch: int) -> float:
    """Commits with one event a second, while the event loop is kept busy with small callbacks all the time."""
    loop = asyncio.get_running_loop()
    going = True

    def spin() -> None:
        sum(range(300))
        if going:
            loop.call_soon(spin)

    for _ in range(50):
        loop.call_soon(spin)
    try:
        return await steps(folder, processes, each, batch)
    finally:
        going = False


async def measured(work: Awaitable[T], records: int) -> tuple[T, float]:
    """What the work answers, and the microseconds of CPU (all threads) that it took a record."""
    begun = time.process_time()
    answer = await work
    return answer, (time.process_time() - begun) / records * 1e6


async def main() -> None:
    """Print all figures."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        (rate, size), cpu = await measured(one_step(folder, 100_000, 2000, 1000), 100_000)
        print(f"one-step processes, 2,000 in flight: {rate:,.0f}/s, {cpu:.1f} us of CPU each; {size:.0f} bytes each")
        for batch in (1000, 500, 100):
            rate, cpu = await measured(steps(folder, 2000, 50, batch), 100_000)
            print(f"commits with one event, batches of {batch}: {rate:,.0f}/s, {cpu:.1f} us of CPU each")
        print(f"the same, 1,000, event loop always busy: {await busy_steps(folder, 2000, 25, 1000):,.0f}/s")
        ours, bare = await idle(folder, 1000)
        print(f"one commit, idle: p50 {ours:.3f} ms; a bare INSERT+COMMIT: {bare:.3f} ms; ratio {ours / bare:.2f}")
    print(f"(load average at the end: {os.getloadavg()[0]:.1f})")
    print(f"(SQLite {sqlite3.sqlite_version}, Python {sys.version.split()[0]}, {os.cpu_count()} cores)")


if __name__ == "__main__":
    asyncio.run(main())
