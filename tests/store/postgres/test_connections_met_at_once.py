"""Several connections of one store may be opened at the same time: that is no fail-over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.store.base import Search
from perdure.store.failover import Identity
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import Trial
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
