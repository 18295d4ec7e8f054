"""A beat passes by a row that a transaction elsewhere locks: the lease is not renewed, and its worker knows that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.authoring.attempt import attempt
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.runtime.instance import Instance
from perdure.runtime.worker import Worker
from tests.runtime.conftest import until, until_row
from tests.transactions.caller import Caller, by_asyncpg, done

gate: asyncio.Event
report: asyncio.Event
said: list[str] = []


class LaterMachine(Computer):
    """A machine whose monotonic clock can be put on."""

    later = 0.0

    def monotonic(self) -> float:
        """The clock of the machine, and what was added."""
        return super().monotonic() + self.later


@step(retry=Retry.NONE)
async def lasts() -> str:
    said.append("began")
    try:
        await report.wait()
        attempt().heartbeat("half of it")
        said.append("reported")
        await gate.wait()
    except asyncio.CancelledError:
        said.append("cancelled")
        raise
    return "done"


@workflow
async def long() -> str:
    return await lasts()


class Scene:
    """A process whose step is under way, and whose lease lapses soon by its worker's clock."""

    def __init__(self, engine: Engine, machine: LaterMachine) -> None:
        self.engine = engine
        self.machine = machine
        assert engine.worker is not None
        self.worker: Worker = engine.worker
        [self.instance] = self.worker.scheduler.instances.values()

    async def lapse_soon(self) -> Instance:
        """Let half of the lease pass; from now on the worker beats only when this test says so."""
        await self.worker.heartbeat.loop.stop()
        await self.worker.heartbeat.guard.stop()
        await self.worker.claimer.loop.stop()
        self.machine.later += self.worker.scheduler.lease_seconds / 2
        return self.instance


@asynccontextmanager
async def at_work(url: str) -> AsyncIterator[Scene]:
    """An engine whose one process is in its step."""
    global gate, report
    gate, report = asyncio.Event(), asyncio.Event()
    said.clear()
    machine = LaterMachine()
    async with Engine(url, work=True, workflows=[long], machine=machine) as engine:
        handle = await engine.start(long)
        await until(lambda: said)
        await until_row(engine, handle.id, lambda row: row.version)
        yield Scene(engine, machine)
        await engine.close(0)


@asynccontextmanager
async def locked(url: str, scene: Scene) -> AsyncIterator[Caller]:
    """A caller has signalled the process within a transaction that stays open."""
    async with by_asyncpg(url) as caller:
        await done(scene.engine.within(caller.connection).signal(scene.instance.process.id, "word"))
        yield caller


async def test_a_lease_that_a_beat_could_not_renew_is_not_taken_for_renewed_and_is_asked_for_again_soon(
    cleared_url: str,
) -> None:
    async with at_work(cleared_url) as scene:
        instance, heartbeat = await scene.lapse_soon(), scene.worker.heartbeat
        before = instance.lease_end
        async with locked(cleared_url, scene) as caller:
            assert await heartbeat._tick() == heartbeat.beat_seconds / 6
            assert instance.lease_end == before
            await caller.end(commit=True)
        assert await heartbeat._tick() == heartbeat.beat_seconds
        assert instance.lease_end > before
        gate.set()
        report.set()


async def test_a_look_whether_a_locked_process_is_still_ours_does_not_take_its_lease_for_renewed(
    cleared_url: str,
) -> None:
    async with at_work(cleared_url) as scene:
        instance, check = await scene.lapse_soon(), scene.worker.lease_check
        before = instance.lease_end
        async with locked(cleared_url, scene) as caller:
            assert await check._look([instance]) == (instance.process.id,)
            assert instance.lease_end == before
            check.doubt([instance.process.id])
            await caller.end(commit=True)
        await until(lambda: instance.lease_end > before)
        gate.set()
        report.set()


async def test_a_process_whose_row_stays_locked_is_let_go_before_its_lease_ends(cleared_url: str) -> None:
    async with at_work(cleared_url) as scene:
        instance, heartbeat = await scene.lapse_soon(), scene.worker.heartbeat
        async with locked(cleared_url, scene) as caller:
            await heartbeat._tick()
            scene.machine.later += scene.worker.scheduler.lease_seconds / 2 - 1
            await heartbeat._guard()
            assert instance.gone, "in the store its lease ends a second later, and another worker may begin the step"
            await until(lambda: "cancelled" in said)
            await caller.end(commit=True)


async def test_progress_that_a_beat_could_not_write_comes_with_the_next(cleared_url: str) -> None:
    async with at_work(cleared_url) as scene:
        instance, heartbeat = await scene.lapse_soon(), scene.worker.heartbeat
        report.set()
        await until(lambda: "reported" in said)
        async with locked(cleared_url, scene) as caller:
            await heartbeat._tick()
            await caller.end(commit=True)
        await heartbeat._tick()
        row = await scene.engine.row(instance.process.id)
        assert row.progress is not None and b"half of it" in row.progress
        gate.set()
