"""Reads are no writes: they hear at once that there is no connection, and none is sent or waited for in vain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.clock import Computer
from perdure.errors import StoreError, StoreUnavailable
from perdure.store.postgres import connection
from perdure.store.postgres.connection import PostgresConnection
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.url import address_of
from tests.store.ground_postgres import PostgresGround

LIMIT = 20.0
NOWHERE = address_of("postgresql://ann@127.0.0.1:1/shop")


class Away:
    """Stands in for a server that cannot be reached: each attempt fails when the test says so."""

    def __init__(self) -> None:
        self.attempts: list[asyncio.Future[Any]] = []
        self.more = asyncio.Event()

    async def connect(self, *_: object) -> Any:
        """One attempt."""
        self.attempts.append(asyncio.get_running_loop().create_future())
        self.more.set()
        return await self.attempts[-1]

    async def attempted(self, count: int) -> asyncio.Future[Any]:
        """Wait for the count-th attempt."""
        async with asyncio.timeout(LIMIT):
            while len(self.attempts) < count:
                self.more.clear()
                await self.more.wait()
        return self.attempts[count - 1]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    """No server can be reached."""
    away = Away()
    monkeypatch.setattr(connection, "connect", away.connect)
    return away


def line(*, reads: bool) -> PostgresConnection:
    made = PostgresConnection(NOWHERE, Computer(), {"now": "SELECT 1"}, "trial", reads=reads)
    made.ready()
    return made


def asked(line: PostgresConnection, count: int, **options: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(line.row("now", **options)) for _ in range(count)]


async def test_all_reads_that_wait_hear_of_one_failed_attempt_that_there_is_no_connection(away: Away) -> None:
    reads = line(reads=True)
    calls = asked(reads, 40)
    first = await away.attempted(1)
    calls += asked(reads, 2)  # they come while it is tried
    await asyncio.sleep(0)
    first.set_exception(ConnectionRefusedError("refused"))
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), LIMIT)
    assert {type(one) for one in answers} == {StoreUnavailable} and len(answers) == 42
    assert len(away.attempts) == 1
    [again] = asked(reads, 1)
    (await away.attempted(2)).set_exception(ConnectionRefusedError("refused"))
    with pytest.raises(StoreUnavailable):
        await again
    await reads.close()


async def test_rule_07_a_write_that_waits_is_answered_for_no_other(away: Away) -> None:
    writes, mixed = line(reads=False), line(reads=True)
    first, second = asked(writes, 2)
    (await away.attempted(1)).set_exception(ConnectionRefusedError("refused"))
    await away.attempted(2)
    assert first.done() and not second.done()
    read, [write] = asked(mixed, 2), asked(mixed, 1, write=True)
    (await away.attempted(3)).set_exception(ConnectionRefusedError("refused"))
    await away.attempted(4)
    assert all(one.done() for one in read) and not write.done()
    for attempt in (away.attempts[1], away.attempts[3]):
        attempt.set_exception(ConnectionRefusedError("refused"))
    answers = await asyncio.gather(first, second, *read, write, return_exceptions=True)
    assert {type(one) for one in answers} == {StoreUnavailable}


async def test_a_connection_for_reads_is_not_waited_for_at_the_end(away: Away) -> None:
    reads = line(reads=True)
    calls = asked(reads, 2)
    await away.attempted(1)
    await asyncio.wait_for(reads.close(), LIMIT)
    for call in calls:
        with pytest.raises(StoreError, match="the store is closed"):
            await call


# -- on a server -----------------------------------------------------------------------------------------------------

BUSY = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"


async def waits(postgres: PostgresGround, purpose: str) -> None:
    """Wait until the server holds up a statement of that connection."""
    async with asyncio.timeout(LIMIT):
        while not await postgres.outside.fetchval(BUSY, f"perdure {purpose}"):
            await postgres.outside.execute("SELECT pg_stat_clear_snapshot()")  # else it is that of the transaction


async def gone(*calls: asyncio.Task[Any]) -> None:
    """Whoever has called goes away."""
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


def sent(line: PostgresConnection, patch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent from now on."""
    statements: list[str] = []
    tried = line._tried

    async def told(sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return await tried(sql, *rest)

    patch.setattr(line, "_tried", told)
    return statements


async def test_a_read_that_nobody_awaits_is_not_sent_and_a_write_is(
    postgres: PostgresGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres.url)
    await store.open()
    log = store.backend.event_log
    statements = sent(store._streams, monkeypatch)
    async with postgres.outside.transaction():
        await postgres.outside.execute("LOCK TABLE perdure.stream_head")
        first = asyncio.create_task(log.head())
        await waits(postgres, "streams")
        left = [asyncio.create_task(log.head()) for _ in range(20)]
        writes = [asyncio.create_task(log.trim()), asyncio.create_task(log.fill("none", 0))]
        await asyncio.sleep(0)
        await gone(*left, *writes)
        last = asyncio.create_task(log.head())
    assert await first == await last
    sql = store._sql
    assert statements == [sql["stream_head"], sql["trim_streams"], sql["fill_stream"], sql["stream_head"]]
    await store.close()


async def test_a_read_under_way_that_nobody_awaits_is_not_waited_for_at_the_end(postgres: PostgresGround) -> None:
    store = PostgresStore(postgres.url)
    await store.open()
    store._reads.patience = 3600.0
    async with postgres.outside.transaction():
        await postgres.outside.execute("LOCK TABLE perdure.worker")
        reading = asyncio.create_task(store.workers())
        await waits(postgres, "reads")
        await gone(reading)
        await asyncio.wait_for(store.close(), LIMIT)


async def test_a_read_under_way_that_is_awaited_is_answered_before_the_end(postgres: PostgresGround) -> None:
    store = PostgresStore(postgres.url)
    await store.open()
    async with postgres.outside.transaction():
        await postgres.outside.execute("LOCK TABLE perdure.worker")
        reading = asyncio.create_task(store.workers())
        await waits(postgres, "reads")
        closing = asyncio.create_task(store.close())
        await asyncio.wait([closing], timeout=0)
        assert not closing.done()
    assert await reading == []
    await closing
