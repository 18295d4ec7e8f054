"""A lease check that could not reach the store is made again: its processes are in doubt until the store answers."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.errors import StoreUnavailable
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore, Outage
from tests.runtime import test_locked_leases as locked_leases
from tests.runtime.conftest import until, until_row
from tests.runtime.test_locked_leases import LaterMachine, Scene, long


@pytest.mark.parametrize("named", [True, False], ids=["named", "any"])
async def test_processes_in_doubt_while_the_store_was_away_are_asked_for_again(store_url: str, named: bool) -> None:
    locked_leases.gate, locked_leases.report = asyncio.Event(), asyncio.Event()
    locked_leases.said.clear()
    machine = LaterMachine()
    store = FaultyStore(store_for(store_url, machine))
    async with Engine(store_url, work=True, workflows=[long], machine=machine, store=store) as engine:
        handle = await engine.start(long)
        await until(lambda: locked_leases.said)
        await until_row(engine, handle.id, lambda row: row.version)
        scene = Scene(engine, machine)
        check, instance = scene.worker.lease_check, await scene.lapse_soon()
        await check.loop.stop()
        before = instance.lease_end
        check.doubt([handle.id_bytes] if named else [])
        outage = Outage("beat").upon(store)
        outage.away = True
        with pytest.raises(StoreUnavailable):
            await check._tick()
        outage.away = False
        await check._tick()
        assert instance.lease_end > before
        await engine.close(0)
