"""The PostgreSQL store alone, against the bare limits of the same server in the same run.

``python -m bench.store_postgres [--uvloop] [--batch 800] [--seconds 4] [--backlog 0] [--url postgresql://…]``
prints, for one connection that writes: pairs per second of a start as owned and its finishing commit with two events;
commits per second that keep the row; the latency of a single commit beside a bare INSERT; the bytes stored for a
finished process. ``--backlog 1000000`` measures again beside so many waiting and so many finished rows.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from typing import Any

import asyncpg
from msgspec.structs import replace

from perdure.clock import SECOND, Machine
from perdure.kernel.commit import Commit, Start, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Worker
from perdure.store.postgres import PostgresStore
from perdure.testing.postgres import Server

LEASE = 15 * SECOND
INPUT = b'["A-17",12]'[:10]
RESULT = b'"receipt1"'
DIGEST = b"8 bytes!"

machine = Machine()


def started(worker: bytes, size: int) -> list[Process]:
    """New rows as an eager starter makes them, owned at once."""
    return [
        Process(machine.new_id(), "order", None, INPUT, version=1, token=1, owner=worker, code="1") for _ in range(size)
    ]


def stepped(row: Process, now: int) -> Commit:
    """One step's result; the row stays with its owner."""
    number = row.events + 1
    event = Event(number, number, EventType.STEP_COMPLETED, now, str(number), "charge", RESULT, DIGEST)
    after = replace(row, version=row.version + 1, events=number, awaiting="step charge")
    return Commit(row.token, row.version, after, (event,), lease=LEASE)


def finished(row: Process, now: int) -> Commit:
    """The last step's result and the end, in one commit of two events."""
    number = row.events + 1
    events = (
        Event(number, number, EventType.STEP_COMPLETED, now, str(number), "charge", RESULT, DIGEST),
        Event(number + 1, 0, EventType.COMPLETED, now),
    )
    after = replace(
        row, status=Status.COMPLETED, version=row.version + 1, owner=None, due_at=None, events=number + 1, result=RESULT
    )
    return Commit(row.token, row.version, after, events)


async def start_all(store: PostgresStore, rows: Sequence[Process]) -> list[Process]:
    """Store rows as owned; the answer is them as the starter knows them."""
    answers = await store.start([Start(row, lease=LEASE) for row in rows])
    assert all(answer.verdict is StartVerdict.CREATED for answer in answers)
    now = answers[0].now
    return [replace(row, created_at=now, opened_at=now) for row in rows]


async def commit_all(store: PostgresStore, commits: Sequence[Commit]) -> int:
    """Write commits, all of which must be applied; the answer is the store's time."""
    answers = await store.commit(commits)
    assert all(answer.verdict is Verdict.APPLIED for answer in answers)
    return answers[0].now


async def pairs(store: PostgresStore, worker: bytes, size: int, seconds: float) -> float:
    """Pairs per second of start and finish, batch after batch on one connection."""
    done, begun = 0, machine.monotonic()
    while machine.monotonic() - begun < seconds:
        rows = await start_all(store, started(worker, size))
        await commit_all(store, [finished(row, rows[0].created_at) for row in rows])
        done += size
    return done / (machine.monotonic() - begun)


async def steps(store: PostgresStore, worker: bytes, size: int, seconds: float) -> float:
    """Commits per second that record one step each and keep the row, ten to a process."""
    done, begun = 0, machine.monotonic()
    while machine.monotonic() - begun < seconds:
        rows = await start_all(store, started(worker, size))
        for _ in range(9):
            commits = [stepped(row, rows[0].created_at) for row in rows]
            await commit_all(store, commits)
            rows = [commit.after for commit in commits]
        await commit_all(store, [finished(row, rows[0].created_at) for row in rows])
        done += size * 10
    return done / (machine.monotonic() - begun)


async def bare(url: str, times: int) -> float:
    """The median milliseconds of INSERT and COMMIT of one row through the driver."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS bare (id uuid PRIMARY KEY, state text, payload bytea)")
        sql = "INSERT INTO bare VALUES ($1::text::uuid, 'done', $2)"
        return await median(times, lambda: connection.execute(sql, machine.new_id().hex(), RESULT))
    finally:
        await connection.close()


async def median(times: int, work: Any) -> float:
    """The median milliseconds that ``work()`` takes."""
    took = []
    for _ in range(times):
        begun = machine.monotonic()
        await work()
        took.append((machine.monotonic() - begun) * 1000)
    return statistics.median(took)


async def alone(store: PostgresStore, worker: bytes, times: int) -> tuple[float, float]:
    """The median milliseconds of a single start as owned, and of a single commit that keeps the row."""
    rows: list[Process] = []

    async def begin() -> None:
        rows.extend(await start_all(store, started(worker, 1)))

    start = await median(times, begin)
    row = rows[0]

    async def go_on() -> None:
        nonlocal row
        commit = stepped(row, row.created_at)
        await commit_all(store, [commit])
        row = commit.after

    return start, await median(times, go_on)


async def bytes_each(url: str, store: PostgresStore) -> tuple[float, dict[str, float]]:
    """Bytes stored for each process after VACUUM, in all and by table and index."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE")
        count = await connection.fetchval("SELECT count(*) FROM perdure.process")
        sizes = await connection.fetch(
            "SELECT c.relname, pg_table_size(c.oid) AS size FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'perdure' AND c.relkind IN ('r', 'i') ORDER BY 2 DESC"
        )
    finally:
        await connection.close()
    parts = {row["relname"]: row["size"] / count for row in sizes if row["size"] > 100_000}
    return sum(parts.values()), parts


async def fill(url: str, rows: int) -> None:
    """So many waiting rows (due within a year) and so many finished ones with their events."""
    connection = await asyncpg.connect(url)
    columns = (
        "INSERT INTO perdure.process (id, created_at, opened_at, changed_at, due_at, status, run, version, token, "
        "inbox, seen, events, deaths, alone_deaths, priority, reminder, kind, code, input, result) "
    )
    try:
        await connection.execute(
            columns + "SELECT gen_random_uuid(), now(), now(), now(), now() + random() * interval '1 year', 'running', "
            f"1, 1, 1, 0, 0, 1, 0, 0, 4, false, 'order', '1', '[]', NULL FROM generate_series(1, {rows})"
        )
        await connection.execute(
            f"WITH made AS ({columns} SELECT gen_random_uuid(), now(), now(), now(), NULL, 'completed', "
            f"1, 1, 1, 0, 0, 2, 0, 0, 4, false, 'order', '1', '[]', '1' FROM generate_series(1, {rows}) RETURNING id) "
            "INSERT INTO perdure.event (process, at, run, number, turn, token, version, type, place, name) "
            "SELECT id, now(), 1, n, 1, 1, 1, 1, '1', 'charge' FROM made, generate_series(1, 2) n"
        )
    finally:
        await connection.close()


def say(text: str) -> None:
    """One line of the report, at once."""
    print(text, flush=True)


async def report(url: str, given: argparse.Namespace) -> None:
    """Measure and print everything on one empty database."""
    store = PostgresStore(url)
    await store.open()
    worker = Worker(machine.new_id(), "bench")
    await store.enlist(worker, 3600 * SECOND)
    await pairs(store, worker.id, given.batch, 1)
    rate = await pairs(store, worker.id, given.batch, given.seconds)
    say(f"pairs (start as owned, finish with 2 events), batches of {given.batch}: {rate:,.0f}/s")
    size, parts = await bytes_each(url, store)
    say(f"bytes for each finished process: {size:,.0f}  ({', '.join(f'{k} {v:.0f}' for k, v in parts.items())})")
    kept = await steps(store, worker.id, given.batch, given.seconds)
    say(f"steps (commits that keep the row, 10 to a process): {kept:,.0f}/s")
    limit = await bare(url, given.single)
    start, commit = await alone(store, worker.id, given.single)
    again = await bare(url, given.single)
    limit = (limit + again) / 2
    say(f"bare INSERT;COMMIT {limit:.3f} ms; single start {start:.3f} ms ({start / limit:.2f} x); ")
    say(f"single commit {commit:.3f} ms ({commit / limit:.2f} x)")
    if given.backlog:
        await fill(url, given.backlog)
        full = await pairs(store, worker.id, given.batch, given.seconds)
        say(
            f"pairs beside {given.backlog:,} waiting and {given.backlog:,} finished rows: "
            f"{full:,.0f}/s ({full / rate:.2f} x)"
        )
    await store.close()


def main() -> None:
    """Read the options and measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, default=800)
    options.add_argument("--seconds", type=float, default=4)
    options.add_argument("--single", type=int, default=1000)
    options.add_argument("--backlog", type=int, default=0)
    options.add_argument("--url")
    options.add_argument("--uvloop", action="store_true")
    given = options.parse_args()
    run: Any = asyncio.run
    if given.uvloop:
        import uvloop

        run = uvloop.run
    if given.url:
        run(report(given.url, given))
        return
    with Server() as server:
        run(report(server.fresh_database(), given))


if __name__ == "__main__":
    main()
