"""A beat renews every lease of its worker that lapses soon, not only one of them."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from tests.runtime.conftest import LIMIT, Open, until


async def test_a_beat_renews_the_leases_of_all_processes_that_lapse_soon(opened: Open) -> None:
    go_on = asyncio.Event()

    @step
    async def lasts() -> None:
        await go_on.wait()

    @workflow
    async def long() -> None:
        await lasts()

    engine, store = await opened(work=True, workflows=[long])
    worker = engine.worker
    assert worker is not None
    scheduler = worker.scheduler
    handles = [await engine.start(long) for _ in range(3)]
    await until(lambda: sum(len(one.steps.in_flight) for one in scheduler.instances.values()) == len(handles))
    renewed: list[bytes] = []

    async def seen(name: str, argument: Any) -> None:
        if name == "beat":
            renewed.extend(renewal.process for renewal in argument.renewals)

    store.after = seen
    soon = scheduler.time.monotonic() + scheduler.lease_seconds / 2
    for instance in scheduler.instances.values():
        instance.lease_end = soon
    worker.heartbeat.loop.wake()
    await until(lambda: any(instance.lease_end > soon for instance in scheduler.instances.values()))
    assert all(instance.lease_end > soon for instance in scheduler.instances.values())
    assert sorted(renewed) == sorted(handle.id_bytes for handle in handles)
    go_on.set()
    for handle in handles:
        await handle.result(LIMIT)
