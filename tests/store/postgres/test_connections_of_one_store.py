"""Several connections of one store are opened, at the same time or one after the other: that is no fail-over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.store.base import Search
from perdure.store.failover import Identity
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import Trial
from perdure.testing.postgres import Server
from tests.store.ground_postgres import PostgresGround


async def test_a_connection_that_asked_before_another_was_met_finds_no_fail_over(
    postgres: PostgresGround, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres.url)
    await store.open()
    identity, asked, met = store.lineage._identity, asyncio.Event(), asyncio.Event()

    async def slow_at_first(connection: Any) -> Identity:
        found = await identity(connection)
        if not asked.is_set():
            asked.set()
            await met.wait()
        return found

    monkeypatch.setattr(store.lineage, "_identity", slow_at_first)
    reading = asyncio.create_task(store.workers())
    await asked.wait()
    row = await trial.started()  # the server's log grows
    assert [one.id for one in await store.search(Search())] == [row.id]  # a connection of its own is met
    met.set()
    assert await reading == await trial.store.workers()
    await store.close()


async def test_a_login_that_may_not_ask_which_server_it_is_opens_every_connection(
    shared_server: Server, new_postgres_url: str
) -> None:
    database = new_postgres_url.rpartition("/")[2]
    shared_server.execute(database, f"CREATE ROLE narrow LOGIN; GRANT CREATE ON DATABASE {database} TO narrow")
    shared_server.execute(database, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    store = PostgresStore(new_postgres_url.replace("perdure@", "narrow@"))
    await store.open()
    try:
        assert await store.workers() == []
        assert await store.search(Search()) == []
        assert store.lineage.set_back == {}
    finally:
        await store.close()
        shared_server.execute(database, "DROP OWNED BY narrow; DROP ROLE narrow")
