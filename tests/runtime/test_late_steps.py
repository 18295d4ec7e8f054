"""Steps of a worker that froze past its lease: none begins and none goes on, whatever is looked at first after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.runtime.instance import Instance
from tests.runtime.conftest import LIMIT, until, until_row

done: list[str] = []
ONCE = Retry.NONE
gate: asyncio.Event
door: threading.Event
machine: Frozen


class Frozen(Computer):
    """A machine that was stopped for a while, of which nothing has been noticed yet."""

    def __init__(self) -> None:
        self.stopped = 0.0

    def monotonic(self) -> float:
        """The clock of the machine, which has gone on."""
        return super().monotonic() + self.stopped

    def freeze(self) -> None:
        """Stand still until every lease is over."""
        self.stopped += 2 * limits.LEASE_SECONDS


@asynccontextmanager
async def at_work(url: str, *flows: object) -> AsyncIterator[Engine]:
    """An engine on that machine."""
    global gate, door, machine
    done.clear()
    gate, door, machine = asyncio.Event(), threading.Event(), Frozen()
    async with Engine(url, work=True, workflows=flows, machine=machine) as engine:  # type: ignore[arg-type]
        try:
            yield engine
        finally:
            door.set()
            await engine.close(0)


@step(retry=ONCE)
async def waiting() -> None:
    done.append("began")
    try:
        await gate.wait()
        done.append("acted")
    except asyncio.CancelledError:
        done.append("cancelled")
        await asyncio.sleep(0)
        done.append("cleaned up")
        raise


@workflow
async def waits() -> None:
    await waiting()


async def test_a_step_that_waits_does_not_go_on_after_its_lease(store_url: str) -> None:
    async with at_work(store_url, waits) as engine:
        await engine.start(waits)
        await until(lambda: done)
        assert engine.worker is not None
        await engine.worker.claimer.loop.stop()
        machine.freeze()
        gate.set()  # nobody has looked at the lease before the step is woken
        await until(lambda: "cleaned up" in done)
        assert done == ["began", "cancelled", "cleaned up"]
        assert engine.metrics()["leases_lost"] == 1


answer: asyncio.Future[None]


@step(retry=ONCE)
async def asking() -> str:
    done.append("began")
    try:
        await answer
    except TimeoutError:
        done.append("cancels the order")
        return "cancelled"
    finally:
        await asyncio.sleep(0)
        done.append("cleaned up")
    return "ordered"


@workflow
async def asks() -> str:
    return await asking()


async def test_a_step_whose_wait_ends_with_an_error_after_its_lease_does_not_act_on_that(store_url: str) -> None:
    global answer
    answer = asyncio.get_running_loop().create_future()
    async with at_work(store_url, asks) as engine:
        await engine.start(asks)
        await until(lambda: done)
        assert engine.worker is not None
        await engine.worker.claimer.loop.stop()
        machine.freeze()
        answer.set_exception(TimeoutError())  # nobody has looked at the lease before the step is woken
        await until(lambda: "cleaned up" in done)
        assert done == ["began", "cleaned up"]
        assert engine.metrics()["leases_lost"] == 1


async def test_a_step_gets_the_error_that_ends_its_wait_if_its_lease_was_renewed(store_url: str) -> None:
    global answer
    answer = asyncio.get_running_loop().create_future()
    async with at_work(store_url, asks) as engine:
        handle = await engine.start(asks)
        await until(lambda: done)
        assert engine.worker is not None
        scheduler = engine.worker.scheduler
        [instance] = scheduler.instances.values()
        await engine.worker.heartbeat.guard.stop()
        instance.lease_end = scheduler.time.monotonic() - 1
        lapsed = scheduler.lease_lapsed

        def renewed(instance: Instance) -> None:
            instance.renewed(scheduler.time.monotonic() + scheduler.lease_seconds)
            lapsed(instance)

        scheduler.lease_lapsed = renewed  # type: ignore[method-assign]
        answer.set_exception(TimeoutError())
        assert await handle.result(LIMIT) == "cancelled"
        assert done == ["began", "cancels the order", "cleaned up"]


@step(retry=ONCE)
async def quick(name: str) -> str:
    done.append(name)
    machine.freeze()
    return name


@workflow
async def hurries(name: str) -> str:
    return await quick(name)


async def test_a_step_does_not_begin_after_its_lease(store_url: str) -> None:
    async with at_work(store_url, hurries) as engine:
        assert engine.worker is not None
        await engine.worker.claimer.loop.stop()
        first = await asyncio.gather(*(engine.start(hurries, name) for name in "ab"))
        await until(lambda: done)
        await until(lambda: not engine.metrics()["in_hand"])
        assert len(done) == 1, "they were begun together; the first one took until after the lease of both"
        assert engine.metrics()["leases_lost"] >= 1
        assert len(first) == 2


@step(retry=ONCE)
def in_thread(name: str) -> str:
    done.append(name)
    if name == "first":
        door.wait(LIMIT)
    return name


@workflow
async def threaded(name: str) -> str:
    return await in_thread(name)


async def test_a_step_for_a_thread_does_not_begin_after_its_lease(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STEP_THREADS", 1)
    async with at_work(store_url, threaded) as engine:
        assert engine.worker is not None
        await engine.start(threaded, "first")
        await until(lambda: done)
        second = await engine.start(threaded, "second")
        await engine.worker.claimer.loop.stop()
        machine.freeze()
        await engine.worker.heartbeat.guard.stop()  # it has not looked yet
        door.set()
        await until(lambda: engine.metrics()["leases_lost"])
        assert done == ["first"]
        row = await until_row(engine, second.id, lambda row: row.owner is not None)
        assert row.owner == engine.worker.incarnation.id, "its lease lapses: whoever claims it goes on with it"


async def test_the_clock_of_a_machine_is_one_that_goes_on_while_it_is_suspended() -> None:
    import time

    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no such clock")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= Computer().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= Computer().ticks() <= time.clock_gettime(time.CLOCK_BOOTTIME)
