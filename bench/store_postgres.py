"""The PostgreSQL store alone, against the bare limits of the same server in the same run.

``python -m bench.store_postgres [--uvloop] [--batch 800] [--seconds 4] [--backlog 0] [--url postgresql://…]``
prints, for one connection that writes: pairs per second of a start as owned and its finishing commit with two events,
beside bare batches of the same rows; commits that keep the row; claims and sends; the latency of a single start and
commit beside a bare INSERT; the bytes stored for a finished process. ``--backlog 1000000`` measures again beside so
many waiting and so many finished rows.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from typing import Any

import asyncpg
from msgspec.structs import replace

from perdure.clock import SECOND, Computer
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Commit, Start, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import WorkerRow
from perdure.store.postgres.store import PostgresStore
from perdure.testing.postgres import Server

LEASE = 15 * SECOND
INPUT = b'["A-17",12]'[:10]
RESULT = b'"receipt1"'
DIGEST = b"8 bytes!"

machine = Computer()


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


async def claims(store: PostgresStore, worker: bytes, size: int, rows: int) -> float:
    """Claimed rows per second: so many rows are due, and are claimed by ``size``; they have no history yet.

    Their leases outlast the whole measurement: rows whose leases had lapsed would be taken over by the next one.
    """
    for _ in range(0, rows, 1000):
        await store.start([Start(Process(machine.new_id(), "claimed", None, INPUT, code="1")) for _ in range(1000)])
    taken, begun = 0, machine.monotonic()
    while claimed := (await store.claim(Claim(worker, (("claimed", "1"),), size, 3600 * SECOND))).claimed:
        taken += len(claimed)
    return taken / (machine.monotonic() - begun)


async def sends(store: PostgresStore, worker: bytes, size: int, seconds: float) -> float:
    """Messages per second, in batches to as many processes."""
    rows = await start_all(store, started(worker, size))
    done, begun = 0, machine.monotonic()
    while machine.monotonic() - begun < seconds:
        await store.send([Message(machine.new_id(), row.id, MessageType.SIGNAL, "approval", RESULT) for row in rows])
        done += size
    return done / (machine.monotonic() - begun)


async def bare_batches(url: str, size: int, seconds: float) -> float:
    """Pairs per second of the least that one could write for them: two statements, two tables, no laws, no fence."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(BARE_TABLES)
        done, begun = 0, machine.monotonic()
        while machine.monotonic() - begun < seconds:
            ids = [machine.new_id().hex() for _ in range(size)]
            await connection.execute(BARE_START, ids, [INPUT] * size)
            await connection.execute(BARE_FINISH, ids, [RESULT] * size)
            done += size
        return done / (machine.monotonic() - begun)
    finally:
        await connection.close()


async def single(url: str, store: PostgresStore, worker: bytes, times: int) -> dict[str, list[float]]:
    """Sorted milliseconds of a bare INSERT and COMMIT, a single start as owned, and a single commit, in turns.

    A process makes ten commits, then another one takes its place.
    """
    took: dict[str, list[float]] = {"bare": [], "start": [], "commit": []}
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS public.bare (id uuid PRIMARY KEY, state text, payload bytea)")
    row = started(worker, 1)[0]
    for turn in range(times):
        identity = machine.new_id().hex()
        begun = machine.monotonic()
        await connection.execute("INSERT INTO public.bare VALUES ($1::text::uuid, 'done', $2)", identity, RESULT)
        took["bare"].append((machine.monotonic() - begun) * 1000)
        begun = machine.monotonic()
        fresh = await start_all(store, started(worker, 1))
        took["start"].append((machine.monotonic() - begun) * 1000)
        if turn % 10 == 0:
            [row] = fresh
        commit = stepped(row, row.created_at)
        begun = machine.monotonic()
        await commit_all(store, [commit])
        took["commit"].append((machine.monotonic() - begun) * 1000)
        row = commit.after
    await connection.close()
    return {name: sorted(values) for name, values in took.items()}


async def bytes_each(url: str) -> tuple[float, dict[str, float]]:
    """Bytes stored for each process after VACUUM, in all and by table and index."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE")
        count = await connection.fetchval("SELECT count(*) FROM perdure.process")
        sizes = await connection.fetch(SIZES)
    finally:
        await connection.close()
    parts = {row["relname"]: row["size"] / count for row in sizes}
    return sum(parts.values()), {name: size for name, size in parts.items() if size >= 1}


async def fill(url: str, rows: int) -> None:
    """So many waiting rows (due within a year) and so many finished ones with their events."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(FILL.replace("{rows}", str(rows)))
    finally:
        await connection.close()


BARE_TABLES = """
    CREATE TABLE IF NOT EXISTS public.bare_process (
        id uuid PRIMARY KEY, kind text, input bytea, due timestamptz, result bytea);
    CREATE TABLE IF NOT EXISTS public.bare_event (id uuid, n int, at timestamptz, name text, PRIMARY KEY (id, n));
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off
"""
BARE_START = """
    INSERT INTO public.bare_process SELECT i::uuid, 'order', p, now(), NULL FROM unnest($1::text[], $2::bytea[]) u(i, p)
"""
BARE_FINISH = """
    WITH done AS (
        UPDATE public.bare_process b SET due = NULL, result = r FROM unnest($1::text[], $2::bytea[]) u(i, r)
        WHERE b.id = i::uuid RETURNING b.id)
    INSERT INTO public.bare_event SELECT id, n, now(), 'charge' FROM done, generate_series(1, 2) n
"""
SIZES = """
    SELECT c.relname, pg_table_size(c.oid) AS size FROM pg_class c
    WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'i') ORDER BY 2 DESC
"""
FILL = """
    INSERT INTO perdure.process (id, created_at, opened_at, changed_at, due_at, status, run, version, token, inbox,
                                 seen, events, deaths, alone_deaths, priority, reminder, kind, code, input, result)
    SELECT gen_random_uuid(), now(), now(), now(), now() + random() * interval '1 year', 'running',
           1, 1, 1, 0, 0, 1, 0, 0, 4, false, 'order', '1', '[]', NULL FROM generate_series(1, {rows});
    WITH made AS (
        INSERT INTO perdure.process (id, created_at, opened_at, changed_at, due_at, status, run, version, token, inbox,
                                     seen, events, deaths, alone_deaths, priority, reminder, kind, code, input, result)
        SELECT gen_random_uuid(), now(), now(), now(), NULL, 'completed',
               1, 1, 1, 0, 0, 2, 0, 0, 4, false, 'order', '1', '[]', '1' FROM generate_series(1, {rows}) RETURNING id)
    INSERT INTO perdure.event (process, at, run, number, turn, token, version, type, place, name)
    SELECT id, now(), 1, n, 1, 1, 1, 1, '1', 'charge' FROM made, generate_series(1, 2) n;
"""


def say(text: str) -> None:
    """One line of the report, at once."""
    print(text, flush=True)


async def report(url: str, given: argparse.Namespace) -> None:
    """Measure and print everything on one empty database."""
    store = PostgresStore(url)
    await store.open()
    worker = WorkerRow(machine.new_id(), "bench")
    await store.enlist(worker, 3600 * SECOND)
    await pairs(store, worker.id, given.batch, given.seconds / 4)
    rates = []
    for _ in range(3):
        limit = await bare_batches(url, given.batch, given.seconds / 2)
        rates.append(await pairs(store, worker.id, given.batch, given.seconds))
        say(f"pairs (start as owned, finish with 2 events): {rates[-1]:,.0f}/s, bare batches {limit:,.0f}/s")
    size, parts = await bytes_each(url)
    listed = ", ".join(f"{name} {part:.0f}" for name, part in parts.items())
    say(f"bytes for each finished process: {size:,.0f} ({listed})")
    say(f"steps (10 commits to a process): {await steps(store, worker.id, given.batch, given.seconds):,.0f}/s")
    say(f"claims by 500: {await claims(store, worker.id, 500, 20_000):,.0f}/s")
    say(f"sends: {await sends(store, worker.id, given.batch, given.seconds / 2):,.0f}/s")
    took = await single(url, store, worker.id, given.single)
    for name, values in took.items():
        middle = values[len(values) // 2]
        say(f"single {name}: p50 {middle:.3f} ms ({middle / took['bare'][len(values) // 2]:.2f} x bare)")
    if given.backlog:
        await fill(url, given.backlog)
        beside = [await pairs(store, worker.id, given.batch, given.seconds) for _ in range(3)]
        ratio = statistics.median(beside) / statistics.median(rates)
        say(f"pairs beside {given.backlog:,} waiting and as many finished rows: {statistics.median(beside):,.0f}/s")
        say(f"that is {ratio:.2f} of the rate before; claims {await claims(store, worker.id, 500, 20_000):,.0f}/s")
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
