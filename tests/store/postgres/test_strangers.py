"""A login that may only connect keeps nobody waiting for ever: advisory locks are open to all, tables are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from perdure.clock import Computer
from perdure.errors import StoreUnavailable
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.process import Process
from perdure.kernel.worker import Beat, WorkerRow
from perdure.store.migrate import steps
from perdure.store.postgres.in_transaction import PostgresInTransaction
from perdure.store.postgres.listen import worker_lock
from perdure.store.postgres.schema import queries, schema_lock, script
from perdure.store.postgres.store import PostgresStore

Connection = Any

HELD = """
SELECT DISTINCT classid::bigint << 32 | objid::bigint AS one,
       classid::bigint::bit(32)::int AS upper, objid::bigint::bit(32)::int AS lower
FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
"""
"""The advisory locks that others hold: anybody may read them, and take them afterwards."""
LINGER = "SELECT pg_advisory_lock(1346720324, hashtext('order A')), pg_advisory_lock(1346720325, 0)"
"""What was once enough to keep the key A of the kind "order" for ever."""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A store on a database of its own."""
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def stranger(store: PostgresStore) -> AsyncIterator[Connection]:
    """A connection of a login that may connect, and nothing else."""
    owner = await asyncpg.connect(store.url)
    await owner.execute("DROP ROLE IF EXISTS passer_by; CREATE ROLE passer_by LOGIN")
    connection = await asyncpg.connect(store.url.replace("perdure@", "passer_by@"))
    yield connection
    await connection.close()
    await owner.execute("DROP ROLE passer_by")
    await owner.close()


def started(key: str) -> Start:
    """A start with that key."""
    return Start(Process(Computer().new_id(), "order", key, b"[]"))


async def test_a_stranger_who_holds_every_lock_that_he_can_see_keeps_no_key(
    store: PostgresStore, stranger: Connection
) -> None:
    guest = await asyncpg.connect(store.url)
    for key in ("A", "B"):
        transaction = guest.transaction()
        await transaction.start()
        await PostgresInTransaction(store.url, guest).start(started(key))
        seen = await stranger.fetch(HELD)
        await transaction.rollback()
        for lock in seen:
            await stranger.execute("SELECT pg_advisory_lock($1)", lock["one"])
            await stranger.execute("SELECT pg_advisory_lock($1, $2)", lock["upper"], lock["lower"])
    await stranger.execute(LINGER)
    async with guest.transaction():
        assert (await PostgresInTransaction(store.url, guest).start(started("A"))).verdict is StartVerdict.CREATED
    await guest.close()
    verdicts = [answer.verdict for answer in await store.start([started("A"), started("B")])]
    assert verdicts == [StartVerdict.EXISTS, StartVerdict.CREATED]


async def test_the_key_of_an_open_transaction_is_busy_and_others_are_not(
    store: PostgresStore, stranger: Connection
) -> None:
    guest = await asyncpg.connect(store.url)
    async with guest.transaction():
        await PostgresInTransaction(store.url, guest).start(started("A"))
        answers = await asyncio.wait_for(store.start([started("A"), started("B")]), 5.0)
        assert [answer.verdict for answer in answers] == [StartVerdict.BUSY, StartVerdict.CREATED]
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await stranger.execute("BEGIN; LOCK TABLE perdure.gate IN SHARE MODE")
    await guest.close()
    assert (await store.start([started("A")]))[0].verdict is StartVerdict.EXISTS


async def test_a_stranger_with_the_lock_of_the_schema_does_not_hinder_a_migration(
    store: PostgresStore, stranger: Connection
) -> None:
    await stranger.execute("SELECT pg_advisory_lock($1)", schema_lock("second"))
    owner, first = await asyncpg.connect(store.url), steps("postgres")[0]
    for sql in (queries("second")["create_schema"], script(first, "second")):
        await owner.execute(sql)
    await owner.execute(queries("second")["record_migration"], first.number, first.name)
    await owner.close()
    other = PostgresStore(f"{store.url}?schema=second")
    await asyncio.wait_for(other.open(), 30.0)
    await other.close()


async def test_a_stranger_with_the_lock_of_a_schema_that_is_not_there_is_named_after_a_while(
    store: PostgresStore, stranger: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stranger.execute("SELECT pg_advisory_lock($1)", schema_lock("second"))
    sql = queries("second")
    assert "60s" in sql["limit_lock"]
    quick = {**sql, "limit_lock": sql["limit_lock"].replace("60s", "1ms")}
    monkeypatch.setattr("perdure.store.postgres.schema.queries", lambda schema: quick)
    with pytest.raises(StoreUnavailable, match=str(schema_lock("second"))):
        await PostgresStore(f"{store.url}?schema=second").open()


async def test_a_dead_worker_whose_lock_a_stranger_holds_is_still_found_silent(
    store: PostgresStore, stranger: Connection
) -> None:
    machine = Computer()
    worker = await store.enlist(WorkerRow(machine.new_id(), "one"), 50_000)
    waiting = asyncio.create_task(stranger.execute("SELECT pg_advisory_lock($1)", worker_lock(worker.id)))
    await store._listening.free(worker.id)  # as if it had died
    await waiting
    (seen,) = await store.workers()
    assert not seen.lock_free  # it looks alive, for as long as its beat lasts, and no longer
    while (await store.now()) <= (seen.due_at or 0):
        pass
    assert await store.retire(worker.id, seen.beats, died=True)
    assert not (await store.beat(Beat(worker.id, (), 1, 1))).alive
