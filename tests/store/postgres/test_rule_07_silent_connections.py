"""Rule 7: a silent connection is aborted, with no cancel request; a COMMIT is never cancelled."""

from __future__ import annotations

import asyncio
import socket

import pytest

from perdure.errors import StoreUnavailable
from perdure.kernel.commit import Verdict
from perdure.store.base import Search
from perdure.store.postgres.connection import connect
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.url import address_of
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on
from tests.store.ground_postgres import PostgresGround
from tests.store.postgres.proxy import Fault, Proxy

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure writes' AND wait_event_type = 'Lock'"


async def test_rule_07_a_line_that_falls_silent_is_given_up_and_the_outcome_settled_over_a_new_one(
    trial: Trial, proxy: Proxy
) -> None:
    store = PostgresStore(proxy.url)
    await store.open()
    worker = await trial.worker()
    row = await trial.owned(worker)
    commit = going_on(row)
    connections = proxy.connections
    proxy.fault, proxy.mark = Fault.SILENT, row.id
    usual, store._writes.patience = store._writes.patience, 0.2
    with pytest.raises(StoreUnavailable):
        await store.commit([commit])
    # A cancel request would have come on a connection of its own.
    assert proxy.connections == connections
    store._writes.patience = usual
    [answer] = await store.commit([commit])
    assert (answer.verdict, proxy.connections) == (Verdict.APPLIED, connections + 1)
    assert (await trial.row(row.id)).version == 1
    await store.close()


async def test_rule_07_a_caller_who_goes_away_does_not_cancel_the_write(
    postgres: PostgresGround, trial: Trial, proxy: Proxy
) -> None:
    store = PostgresStore(proxy.url)
    await store.open()
    worker = await trial.worker()
    row = await trial.owned(worker)
    connections = proxy.connections
    async with postgres.outside.transaction():
        await postgres.outside.execute("LOCK TABLE perdure.event")
        caller = asyncio.create_task(store.commit([going_on(row)]))
        while not await postgres.outside.fetchval(BLOCKED):
            pass
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
    assert (await store.commit([going_on(row)]))[0].verdict is Verdict.APPLIED
    whole = await trial.whole(row.id)
    assert (whole.process.version, len(whole.events), proxy.connections) == (1, 1, connections)
    await store.close()


async def test_closing_waits_for_the_write_under_way(postgres: PostgresGround, trial: Trial) -> None:
    store = postgres.store()
    await store.open()
    worker = await trial.worker()
    row = await trial.owned(worker)
    async with postgres.outside.transaction():
        await postgres.outside.execute("LOCK TABLE perdure.event")
        writing = asyncio.create_task(store.commit([going_on(row)]))
        while not await postgres.outside.fetchval(BLOCKED):
            pass
        closing = asyncio.create_task(store.close())
        await asyncio.wait([closing], timeout=0)
        assert not closing.done()
    await closing
    assert (await writing)[0].verdict is Verdict.APPLIED


async def test_both_ends_are_told_to_notice_a_peer_gone_dark_within_ten_seconds(postgres: PostgresGround) -> None:
    connection = await connect(address_of(postgres.url), "test")
    try:
        settings = [
            await connection.fetchval("SELECT setting::int FROM pg_settings WHERE name = $1", name)
            for name in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        ]
        assert settings[0] + settings[1] * settings[2] <= 10
        assert 0 < settings[3] <= 10_000
        line: socket.socket = connection._transport.get_extra_info("socket")
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert [line.getsockopt(socket.IPPROTO_TCP, option) for option in options] == settings
    finally:
        await connection.close()


async def test_each_purpose_has_a_connection_of_its_own(postgres: PostgresGround, trial: Trial) -> None:
    sql = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'perdure %'"

    async def purposes() -> set[str]:
        return {row[0].removeprefix("perdure ") for row in await postgres.outside.fetch(sql)}

    assert await purposes() == {"presence", "writes"}
    await trial.store.search(Search(ids=(bytes(16),)))
    assert await purposes() == {"presence", "writes", "reads"}
    await trial.stored()
    assert await purposes() == {"presence", "writes", "reads", "searches"}
    await trial.beat(await trial.worker())
    assert await purposes() == {"presence", "writes", "reads", "searches", "beats"}


async def test_a_beat_does_not_wait_behind_a_write(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    row = await trial.owned(worker)
    async with postgres.outside.transaction():
        await postgres.outside.execute("LOCK TABLE perdure.event")
        writing = asyncio.create_task(trial.commit(going_on(row)))
        while not await postgres.outside.fetchval(BLOCKED):
            pass
        assert (await trial.beat(worker, row)).alive
        assert not writing.done()
    assert (await writing).verdict is Verdict.APPLIED
