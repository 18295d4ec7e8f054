"""Event streams on PostgreSQL: numbers become visible in another order than they were given out, and none is lost."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import StoreUnavailable
from perdure.kernel.commit import Start
from perdure.kernel.stream import BEGUN, CREATED, UNFILLED, EventStream
from perdure.testing.conformance import Trial
from perdure.testing.conformance.streaming import log, stream, types
from perdure.testing.conformance.trial import finished, going_on
from tests.runtime.conftest import A_MOMENT
from tests.store.ground_postgres import PostgresGround

pytestmark = pytest.mark.usefixtures("warm")

WAITING = "SELECT count(*) FROM pg_locks l WHERE NOT l.granted"
THERE = "SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = 'perdure.event'::regclass AND NOT t.tgisinternal"


async def start_within(trial: Trial, connection: asyncpg.Connection) -> bytes:
    """Start a process in a transaction that somebody keeps open."""
    process = trial.process()
    await trial.store.backend.in_transaction(connection).start(Start(process))
    return process.id


async def test_a_commit_that_was_slow_is_neither_waited_for_nor_left_out(
    trial: Trial, postgres: PostgresGround
) -> None:
    await stream(trial)
    slow = await asyncpg.connect(postgres.url)
    try:
        async with slow.transaction():
            early = await start_within(trial, slow)
            late = await trial.started()
            found = await log(trial)
            assert [one.process for one in found] == [late.id], "its number is higher, and it is committed"
        position = found[-1].position
        await trial.store.records(EventStream, [replace(await _row(trial), version=2, position=position)])
        assert [one.process for one in await log(trial, position)] == [early], "its number was lower"
    finally:
        await slow.close()


async def test_one_process_s_commits_keep_their_order_though_their_transactions_began_in_another(
    trial: Trial, postgres: PostgresGround
) -> None:
    await stream(trial)
    row = await trial.owned(await trial.worker())
    older = await asyncpg.connect(postgres.url)
    oldest = await asyncpg.connect(postgres.url)
    try:
        transactions = older.transaction(), oldest.transaction()
        await transactions[0].start()
        await older.execute("SELECT pg_current_xact_id()")  # its id is lower than that of the commit it comes after
        await transactions[1].start()
        await start_within(trial, oldest)  # keeps the oldest running transaction where it is
        row = await trial.done(going_on(row))
        await older.execute(
            "INSERT INTO perdure.event SELECT process, at, run, 2, turn, token, version, message, type, place, name, "
            "digest, payload FROM perdure.event WHERE process = $1", UUID(bytes=row.id),
        )  # fmt: skip
        await transactions[0].commit()
        assert [one.event.number for one in await log(trial) if one.process == row.id] == [0, 0, 1, 2]
        await transactions[1].commit()
        assert len(await log(trial)) == 5
    finally:
        await older.close()
        await oldest.close()


async def test_what_was_rolled_back_is_not_logged(trial: Trial, postgres: PostgresGround) -> None:
    await stream(trial)
    connection = await asyncpg.connect(postgres.url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await start_within(trial, connection)
        await transaction.rollback()
    finally:
        await connection.close()
    await trial.started()
    assert [one.position for one in await log(trial)] == [1]


async def blocked(postgres: PostgresGround) -> None:
    """Wait until a statement waits for a lock."""
    while not await postgres.outside.fetchval(WAITING):
        await asyncio.sleep(A_MOMENT)


async def test_of_two_that_order_the_log_at_once_one_waits_and_nothing_is_there_twice(
    trial: Trial, postgres: PostgresGround
) -> None:
    await stream(trial)
    await trial.store.start([Start(trial.process()) for _ in range(5)])
    other = await asyncpg.connect(postgres.url)
    try:
        async with other.transaction():
            assert await other.fetchval("SELECT perdure.order_stream(2)") == 2
            reading = asyncio.create_task(log(trial))
            await blocked(postgres)
    finally:
        await other.close()
    found = await reading
    assert [one.position for one in found] == [1, 2, 3, 4, 5]
    assert len({one.process for one in found}) == 5


async def test_a_page_ends_where_the_log_ended_though_another_reader_orders_more_meanwhile(
    trial: Trial, postgres: PostgresGround
) -> None:
    await stream(trial)
    first = await trial.started()
    assert len(await log(trial)) == 1  # the next reader finds nothing to order, and so locks nothing
    other = await asyncpg.connect(postgres.url)
    try:
        async with other.transaction():
            await other.execute("LOCK TABLE perdure.stream_kept IN ACCESS EXCLUSIVE MODE")
            reading = asyncio.create_task(trial.store.backend.event_log.read(0, 100, 1_000_000))
            await blocked(postgres)  # between the order of the log and the page
            second = await trial.started()
            assert await postgres.outside.fetchval("SELECT perdure.order_stream(100)") == 2
    finally:
        await other.close()
    page = await reading
    assert ([one.process for one in page.events], page.upto) == ([first.id], 1)
    assert [one.process for one in await log(trial, page.upto)] == [second.id]


async def test_a_first_stream_waits_for_nobody_long_and_leaves_nothing_half_made(
    trial: Trial, postgres: PostgresGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.postgres.connection.CLASH_RETRIES", 1)
    slow = await asyncpg.connect(postgres.url)
    try:
        async with slow.transaction():
            await start_within(trial, slow)
            with pytest.raises(StoreUnavailable):
                await trial.store.records(EventStream, [EventStream("audit", 1)])
            assert await trial.store.records(EventStream) == []
            await trial.started()
    finally:
        await slow.close()
    assert await postgres.outside.fetchval(THERE) == 0
    await stream(trial)
    assert await postgres.outside.fetchval(THERE) == 2
    await trial.owned(await trial.worker())
    assert types(await log(trial)) == [CREATED, BEGUN]


async def test_without_a_stream_no_trigger_is_there(trial: Trial, postgres: PostgresGround) -> None:
    assert await postgres.outside.fetchval(THERE) == 0
    made = await stream(trial)
    await trial.store.records(EventStream, [made.next(removed=True)])
    assert await postgres.outside.fetchval(THERE) == 0


async def test_a_start_whose_key_is_kept_was_never_created(trial: Trial, postgres: PostgresGround) -> None:
    row = await trial.owned(await trial.worker(), key="A-17")
    await trial.done(finished(row))
    await trial.time.advance(1)
    assert (await trial.store.prune(0, 3600 * SECOND, 10)).keys == 0
    await stream(trial)
    await trial.store.start([Start(trial.process(key="A-17"))])
    assert await log(trial) == []
    assert await postgres.outside.fetchval("SELECT count(*) FROM perdure.stream_gone") == 0


async def test_a_second_stream_that_begins_with_what_is_stored_waits_for_removals_that_have_not_seen_it(
    trial: Trial, postgres: PostgresGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.store.postgres.connection.CLASH_RETRIES", 1)
    await trial.done(going_on(await trial.owned(await trial.worker())))
    await stream(trial)
    removing = await asyncpg.connect(postgres.url)
    try:
        async with removing.transaction():
            await removing.execute("DELETE FROM perdure.event")  # its trigger keeps what the streams of now may want
            with pytest.raises(StoreUnavailable):
                await trial.store.records(EventStream, [EventStream("late", 1, position=UNFILLED)])
    finally:
        await removing.close()
    assert [row.name for row in await trial.store.records(EventStream)] == ["audit"]


KEPT = "SELECT (SELECT count(*) FROM perdure.stream_kept), (SELECT count(g.input) FROM perdure.stream_gone g)"


async def test_what_every_stream_has_had_is_removed_and_nothing_of_it_is_kept(
    trial: Trial, postgres: PostgresGround
) -> None:
    made = await stream(trial)
    worker = await trial.worker()
    row, _ = await trial.owned(worker), await trial.started()
    await trial.done(finished(await trial.done(going_on(row, 3))))
    upto = next(one.position for one in await log(trial) if one.event.number == 2)
    await trial.store.records(EventStream, [made.next(position=upto)])
    await trial.started()
    await trial.time.advance(1)
    assert (await trial.store.prune(0, 3600 * SECOND, 10)).processes == 1
    kept, inputs = await postgres.outside.fetchrow(KEPT)
    assert (kept, inputs) == (4, 0), "a row of the log stands for the events of a commit; one was not had whole"
    other = await trial.done(finished(await trial.done(going_on(await trial.owned(worker)))))
    await trial.store.records(EventStream, [made.next().next(position=(await log(trial))[-1].position)])
    await trial.time.advance(1)
    assert (await trial.store.prune(0, 3600 * SECOND, 10)).processes == 1
    assert tuple(await postgres.outside.fetchrow(KEPT)) == (0, 0), f"{other.id.hex()} was delivered"


async def _row(trial: Trial) -> EventStream:
    [row] = await trial.store.records(EventStream)
    return row
