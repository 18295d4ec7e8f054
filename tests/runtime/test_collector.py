"""The garbage collector has nothing to do for processes that end: no step and no process leaves a cycle behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import cache

import pytest

from perdure import Retry, Schedule, attempt, machine, new_uuid, receive
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.limits import COLLECTOR_OBJECTS
from perdure.runtime import gc_tuning
from tests.garbage import unreachable
from tests.runtime.conftest import Open


@step
async def add(n: int) -> int:
    return n + 1


@workflow
async def adding(n: int) -> int:
    for _ in range(5):
        n = await add(n)
    return n


async def test_processes_that_end_leave_no_cycles_for_the_collector(sqlite_url: str) -> None:
    async with Engine(sqlite_url, work=True, workflows=[adding]) as engine:
        handles = await engine.start_many(adding, [(0,)])
        await asyncio.gather(*(handle.result(20) for handle in handles))
        left = range(10)  # what is freed may have kept more alive, of the tests before this one
        assert any(gc.collect() == 0 for _ in left)
        gc.disable()
        try:
            handles = await engine.start_many(adding, [(n,) for n in range(50)])
            await asyncio.gather(*(handle.result(20) for handle in handles))
            found = gc.collect()
        finally:
            gc.enable()
    assert found < 50, f"{found} objects of 50 processes and 250 steps could only be freed by the collector"


class Counter(machine.Machine):
    """It counts, and ends when it is told to."""

    count: int = 0

    @machine.init
    def made(self) -> None:
        """Begin with nothing."""

    @machine.call
    async def add(self, amount: int) -> int:
        """Count."""
        self.count = await add(self.count)
        return self.count + amount

    @machine.timer
    def due(self) -> None:
        """It is never due here."""

    @machine.call
    def end(self) -> None:
        """End."""
        machine.complete()


@workflow
async def waiting(n: int) -> int:
    async with asyncio.TaskGroup() as group, asyncio.timeout(3600):
        group.create_task(receive("never"))
        await add(n)
    return n


@workflow
async def hearing(n: int) -> int:
    return await add(n) + await receive("never", int)


@cache
def begun() -> asyncio.Queue[int]:
    """Gets a word from each step that hangs; each test has its own."""
    return asyncio.Queue()


@step
async def hangs(n: int) -> None:
    begun().put_nowait(attempt().number)
    await asyncio.Event().wait()


@workflow
async def hanging(n: int) -> None:
    await hangs(n)


@step
async def reports(n: int) -> str:
    attempt().heartbeat(n)
    if attempt().number == 1:
        raise ValueError(n)
    return attempt().idempotency_key


@step
def reports_in_a_thread(n: int) -> str:
    attempt().heartbeat(n)
    return attempt().idempotency_key


@workflow
async def asking(n: int) -> str:
    return await reports.options(retry=Retry(first=0.0))(n) + await reports_in_a_thread(n)


@workflow
async def with_a_child(n: int) -> int:
    return await adding(n) + 1


@workflow
async def failing(n: int) -> int:
    raise ValueError(f"number {n}")


OF_A_PROCESS = {"Instance", "TurnLoop", "TurnTask", "Life", "OpenSteps", "Inbox", "Ask", "Outbox", "Mailbox"}


async def waits(engine: Engine) -> None:
    await engine.start(waiting, 1)


async def waits_for_its_time(engine: Engine) -> None:
    await engine.start(adding.options(delay=3600), 1)


async def is_cancelled(engine: Engine) -> None:
    handle = await engine.start(hearing, 1)
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(20)


async def is_cancelled_in_a_step(engine: Engine) -> None:
    handle = await engine.start(hanging, 1)
    await begun().get()
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(20)


async def has_a_child(engine: Engine) -> None:
    assert await (await engine.start(with_a_child, 1)).result(20) == 7


async def asks_for_its_attempt(engine: Engine) -> None:
    assert await (await engine.start(asking, 1)).result(20)


async def fails(engine: Engine) -> None:
    with pytest.raises(ProcessFailed):
        await (await engine.start(failing, 1)).result(20)


async def is_called(engine: Engine) -> None:
    counter = await engine.start(Counter.made)
    assert [await counter.call(Counter.add, 1) for _ in range(3)] == [2, 3, 4]


async def is_called_to_end(engine: Engine) -> None:
    counter = await engine.start(Counter.made)
    await counter.call(Counter.end)
    await counter.result(20)


async def is_scheduled(engine: Engine) -> None:
    await engine.schedules.put(f"nightly {new_uuid()}", Schedule(at=datetime(2100, 1, 1, tzinfo=UTC)), adding, 1)


LIVES = [
    waits, waits_for_its_time, is_cancelled, is_cancelled_in_a_step, has_a_child, asks_for_its_attempt,
    fails, is_called, is_called_to_end, is_scheduled,
]  # fmt: skip


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
async def test_a_process_that_leaves_memory_leaves_nothing_for_the_collector(
    life: Callable[[Engine], Awaitable[None]], opened: Open
) -> None:
    begun.cache_clear()
    engine, _ = await opened(work=True, workflows=[adding, waiting, hearing, hanging, asking, with_a_child, failing])
    await life(engine)
    gc.collect()
    gc.disable()
    try:
        await asyncio.gather(*(life(engine) for _ in range(5)))
        await engine.close(0)
        found = unreachable()
    finally:
        gc.enable()
    assert [one for one in found if one.split()[-1] in OF_A_PROCESS] == []


@pytest.fixture
def _as_a_program_finds_it() -> Iterator[None]:
    """Give back for a moment what the whole session shares, see ``tests/conftest.py``."""
    gc_tuning.restore()
    yield
    gc_tuning.calm()


@pytest.mark.usefixtures("_as_a_program_finds_it")
async def test_a_worker_raises_the_threshold_and_gives_it_back(sqlite_url: str) -> None:
    before = gc.get_threshold()
    async with Engine(sqlite_url, work=True, workflows=[adding]):
        assert before[0] < gc.get_threshold()[0] == COLLECTOR_OBJECTS
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("_as_a_program_finds_it")
async def test_a_client_that_runs_no_work_leaves_the_collector_alone(sqlite_url: str) -> None:
    before = gc.get_threshold()
    async with Engine(sqlite_url, migrate=True):
        assert gc.get_threshold() == before


@pytest.mark.usefixtures("_as_a_program_finds_it")
async def test_a_threshold_that_is_high_already_is_left_alone(sqlite_url: str) -> None:
    before = gc.get_threshold()
    for own in ((COLLECTOR_OBJECTS + 1, *before[1:]), (0, *before[1:])):
        gc.set_threshold(*own)
        try:
            async with Engine(sqlite_url, work=True, workflows=[adding]):
                assert (gc.get_threshold(), gc.get_freeze_count()) == (own, 0)
            assert gc.get_threshold() == own
        finally:
            gc.set_threshold(*before)
