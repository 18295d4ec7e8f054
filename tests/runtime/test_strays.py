"""A stray: a row that its worker owns by the store, and does not hold. It is freed at once, not after its lease."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, workflow
from perdure.client.handle import Handle
from perdure.runtime.instance import Instance
from perdure.runtime.worker import Worker
from perdure.testing.faults import FaultyStore, Gate
from tests.runtime.conftest import LIMIT, Open, until

gates: dict[str, asyncio.Event] = {}


@step
async def passes() -> None:
    await gates["now"].wait()


@workflow
async def waits() -> None:
    await passes()


@step
async def follows() -> None:
    await gates["then"].wait()


@workflow
async def waits_twice() -> None:
    await passes()
    await follows()


async def at_work(opened: Open, workflow: Workflow[[], None]) -> tuple[Handle[None], Worker, Instance, FaultyStore]:
    """A process whose step is under way, the worker that has it in hand, and the store of that worker."""
    engine, store = await opened(work=True, workflows=[workflow])
    worker = engine.worker
    assert worker is not None
    handle = await engine.start(workflow)
    await until(lambda: any(instance.steps.in_flight for instance in worker.scheduler.instances.values()))
    [instance] = worker.scheduler.instances.values()
    return handle, worker, instance, store


def let_go_at_a_beat(store: FaultyStore, worker: Worker, instance: Instance) -> asyncio.Event:
    """Let the process go once a beat has renewed its lease, before the answer is heard; the event says that it was."""
    dropped = asyncio.Event()

    async def let_go(name: str, argument: Any) -> None:
        if name == "beat" and argument.renewals and not dropped.is_set():
            dropped.set()
            worker.scheduler.drop(instance)

    store.after = let_go
    return dropped


async def test_a_row_that_was_let_go_while_a_beat_renewed_it_does_not_stand_still_for_a_lease(opened: Open) -> None:
    gates["now"] = asyncio.Event()
    handle, worker, instance, store = await at_work(opened, waits)
    dropped = let_go_at_a_beat(store, worker, instance)
    instance.lease_end = worker.scheduler.time.monotonic() + worker.scheduler.lease_seconds / 2
    worker.heartbeat.loop.wake()
    await until(lambda: handle.id_bytes in worker.scheduler.instances and dropped.is_set())
    gates["now"].set()
    await handle.result(LIMIT)
    assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"


async def test_a_row_that_was_let_go_while_it_was_looked_whether_it_is_still_ours_is_freed_at_once(
    opened: Open,
) -> None:
    gates["now"] = asyncio.Event()
    handle, worker, instance, store = await at_work(opened, waits)
    dropped = let_go_at_a_beat(store, worker, instance)
    worker.lease_check.doubt((handle.id_bytes,))
    await until(lambda: handle.id_bytes in worker.scheduler.instances and dropped.is_set())
    gates["now"].set()
    await handle.result(LIMIT)
    assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"


async def test_a_row_that_was_let_go_because_its_lease_was_about_to_end_is_freed_at_once(opened: Open) -> None:
    """As after a claim that was carried out almost a lease after it was sent: in the store the lease is fresh."""
    gates["now"] = asyncio.Event()
    handle, worker, instance, _ = await at_work(opened, waits)
    await worker.heartbeat.loop.stop()
    instance.lease_end = worker.scheduler.time.monotonic()
    await until(lambda: worker.scheduler.instances.get(handle.id_bytes) not in (None, instance))
    gates["now"].set()
    await handle.result(LIMIT)
    assert worker.telemetry.counters["leases_lost"] == 1
    assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"


async def test_a_commit_that_was_long_under_way_does_not_shorten_a_lease_that_was_renewed_meanwhile(
    opened: Open,
) -> None:
    gates["now"], gates["then"] = asyncio.Event(), asyncio.Event()
    handle, worker, instance, store = await at_work(opened, waits_twice)
    gate = store.before = Gate("commit")
    gates["now"].set()
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    lease, now = worker.scheduler.lease_seconds, worker.scheduler.time.monotonic()
    worker.scheduler.committer.sent -= 2 * lease  # as after an outage
    instance.lease_end = now + lease / 2
    worker.heartbeat.loop.wake()
    await until(lambda: instance.lease_end > now + lease / 2)
    gate.open.set()
    await until(lambda: instance.steps.in_flight)
    assert instance.lease_end > now + lease / 2, "else its guard lets it go, and it stands still for the rest"
    gates["then"].set()
    await handle.result(LIMIT)


async def test_a_row_that_was_let_go_while_a_commit_of_it_was_under_way_does_not_stand_still_for_its_lease(
    opened: Open,
) -> None:
    gates["now"], gates["then"] = asyncio.Event(), asyncio.Event()
    handle, worker, instance, store = await at_work(opened, waits_twice)
    gate = store.before = Gate("commit")
    gates["now"].set()
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    worker.scheduler.drop(instance)
    gate.open.set()
    await until(lambda: handle.id_bytes in worker.scheduler.instances)
    gates["then"].set()
    await handle.result(LIMIT)
    assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"


async def test_a_start_that_is_answered_after_its_lease_does_not_stand_still_for_what_the_store_gave_it(
    opened: Open,
) -> None:
    gates["now"] = asyncio.Event()
    engine, store = await opened(work=True, workflows=[waits])
    worker = engine.worker
    assert worker is not None
    gate = store.before = Gate("start")
    start = asyncio.create_task(engine.start(waits))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    worker.scheduler.committer.sent -= 2 * worker.scheduler.lease_seconds  # as after an outage
    gate.open.set()
    handle = await start
    await until(lambda: handle.id_bytes in worker.scheduler.instances)
    gates["now"].set()
    await handle.result(LIMIT)
    counters = worker.telemetry.counters
    assert (counters["leases_lost"], counters["takeovers"]) == (1, 0), "freed at once, and not when its lease lapsed"
