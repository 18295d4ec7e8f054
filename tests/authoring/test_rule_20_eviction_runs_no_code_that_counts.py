"""Rule 20: an evicted turn is dead, the collector schedules nothing, and the end of a process is in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.turns import current, eviction
from perdure.turns.loop import TurnLoop, current_turn
from tests.authoring.life import BIRTH, ID, Life
from tests.source import PYTHONPATH

RAN: list[str] = []


@pytest.fixture(autouse=True)
def ran(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What steps have really run, and the assurance that nothing is left for the collector to complain about."""
    RAN.clear()
    yield RAN
    gc.collect()


@step
async def work(name: str) -> str:
    RAN.append(name)
    return name


@step
def blocking_work(name: str) -> str:
    RAN.append(name)
    return name


async def _clean_up() -> None:
    _ = blocking_work("unawaited")
    await blocking_work("blocking")
    await work("refund")


@workflow
async def with_clean_up() -> None:
    try:
        await work("charge")
    finally:
        set_state("cleaning")
        await _clean_up()


@workflow
async def catching_everything() -> None:
    while True:
        try:
            await work("again")
        except BaseException:
            pass


@workflow
async def with_tasks() -> None:
    async def stay() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.gather(work("a"), asyncio.sleep(1))

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await work("generator")

    lock = asyncio.Lock()
    later = work_later()
    async with asyncio.TaskGroup() as group, lock, asyncio.timeout(60):
        group.create_task(stay())
        asyncio.create_task(stay())  # noqa: RUF006
        async for _ in numbers():
            try:
                await receive("never", timeout=5)
            finally:
                await asyncio.create_task(work("b"))
                await receive("other")
    await later


async def work_later() -> None:
    await work("later")


@pytest.mark.parametrize("flow", [with_clean_up, with_tasks], ids=lambda flow: flow.name)
def test_rule_20_what_clean_up_asks_for_at_eviction_is_void(
    flow: Any, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    loop = Life(flow).loop
    loop.evict()
    assert (loop.take_outputs(), loop.open, loop.timers.open, loop.state) == (([], None), {}, {}, None)
    assert ran == []
    del loop
    gc.collect()
    assert ran == []
    assert caplog.records == []


def test_rule_20_code_that_catches_everything_is_given_up_at_eviction(ran: list[str]) -> None:
    before = len(eviction._stubborn)
    loop = Life(catching_everything).loop
    loop.evict()
    gc.collect()
    assert ran == []
    assert len(eviction._stubborn) == before + 1


def test_rule_20_code_that_catches_everything_does_not_keep_the_program_from_ending() -> None:
    program = (
        "from tests.authoring.life import Life\n"
        "from tests.authoring.test_rule_20_eviction_runs_no_code_that_counts import catching_everything\n"
        "Life(catching_everything).loop.evict()\n"
        "print('evicted', flush=True)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ended.returncode, ended.stdout) == (0, "evicted\n"), ended.stderr


def test_rule_20_a_process_evicted_before_its_first_turn_leaves_no_warning() -> None:
    loop = TurnLoop(ID, b"seed")
    loop.begin(with_clean_up.function)
    loop.evict()


def test_rule_20_a_dead_loop_runs_no_more_turns() -> None:
    loop = Life(with_clean_up).loop
    loop.evict()
    loop.evict()
    with pytest.raises(RuntimeError, match="after evict"):
        loop.run(BIRTH)


def test_rule_20_eviction_works_inside_a_task_of_another_loop() -> None:
    async def worker() -> Any:
        life = Life(with_tasks)
        task = asyncio.current_task()
        life.loop.evict()
        assert asyncio.current_task() is task
        await asyncio.wait_for(asyncio.create_task(asyncio.sleep(0)), 5)
        return life

    assert asyncio.run(worker()).loop.dead


class Littering:
    """Garbage that would ask for a step when the collector finds it."""

    def __init__(self) -> None:
        self.self = self

    def __del__(self) -> None:
        blocking_work("by the collector")


@workflow
async def littering() -> list[bool]:
    Littering()
    enabled = gc.isenabled()
    litter = [[] for _ in range(5000)]
    await work("only this")
    return [enabled, bool(litter)]


def test_rule_20_the_collector_never_runs_in_a_turn() -> None:
    life = Life(littering)
    assert [name for name, *_ in life.seen[0].asked] == ["work"]
    assert gc.isenabled()
    assert life.finish_step("work").outcome == "[false,true]"


@workflow
async def dropping_a_generator() -> str:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await work("closed")

    async for _ in numbers():
        break
    await work("after")
    return "done"


def test_rule_20_a_dropped_generator_is_closed_at_the_end_and_not_by_the_collector() -> None:
    hooks = sys.get_asyncgen_hooks()
    life = Life(dropping_a_generator)
    gc.collect()
    assert life.seen[-1].open == [("work", "1")]
    assert life.finish_step("work").open == [("work", ".end:1")]
    assert life.finish_step("work", ".end:1").outcome == '"done"'
    assert sys.get_asyncgen_hooks() == hooks
    life.check_replays()


@workflow
async def generating_often(rounds: int) -> list[int]:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    left = numbers()
    total = await anext(left)
    for _ in range(rounds):
        async for number in numbers():
            total += number
    await receive("go")
    return [total, await anext(left)]


def test_rule_20_generators_that_have_ended_are_not_kept_for_the_end() -> None:
    life = Life(generating_often, [1000])
    assert len(life.loop.generators) < 5
    assert life.signal("go").outcome == "[3001,2]"


def test_rule_20_finished_and_evicted_processes_are_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for evicted in (False, True):
            life = Life(dropping_a_generator)
            if evicted:
                life.loop.evict()
            else:
                life.finish_step("work")
                life.finish_step("work", ".end:1")
            gc.collect()
            life.loop = TurnLoop(ID, b"")
            assert gc.collect() == 0
    finally:
        gc.enable()


@workflow
async def leaving_tasks() -> str:
    async def stay(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.create_task(_undo(name))

    for name in "ab":
        asyncio.create_task(stay(name))  # noqa: RUF006
    await work("first")
    return "returned"


async def _undo(name: str) -> None:
    await work(f"undo {name}")
    await work(f"undone {name}")


def test_rule_20_at_return_the_remaining_tasks_are_cancelled_and_awaited() -> None:
    life = Life(leaving_tasks)
    seen = life.finish_step("work")
    assert [raw for _, _, raw in seen.asked] == [b'["undo a"]', b'["undo b"]']
    assert not seen.finished
    life.finish_step("work", ".2.1:1")
    life.finish_step("work", ".2.1:2")
    life.finish_step("work", ".1.1:1")
    assert life.finish_step("work", ".1.1:2").outcome == '"returned"'
    life.check_replays()


@workflow
async def failing_unheard() -> str:
    async def fail(name: str) -> None:
        await work(name)
        raise ValueError(name)

    asyncio.create_task(fail("a"))  # noqa: RUF006
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    future = asyncio.get_running_loop().create_future()
    future.set_exception(KeyError("lost"))
    del future
    await work("b")
    await work("c")
    open = work("d")
    return f"done {open.done()}"


def test_rule_20_unretrieved_errors_are_logged_at_one_fixed_point(caplog: pytest.LogCaptureFixture) -> None:
    life = Life(failing_unheard)
    life.finish_step("work", ".1:1")
    life.finish_step("work", "1")
    life.replay().evict()
    gc.collect()
    assert caplog.records == []
    life.finish_step("work", "2")
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "error in the callback" in text]
    assert [text for text in told if "exception was never retrieved" in text]
    assert [text for text in told if "task.1 failed and nobody awaited it" in text]
    assert [text for text in told if "'work' at place 3 was still open when the workflow returned" in text]
    assert len(told) == 4
    assert all(record.levelno >= logging.WARNING for record in caplog.records)


@workflow
async def making_many_tasks() -> int:
    async def quick(number: int) -> None:
        if number == 3:
            raise ValueError("unheard")

    for number in range(500):
        asyncio.create_task(quick(number))  # noqa: RUF006
        await asyncio.sleep(0)
    loop: Any = asyncio.get_running_loop()
    return len(loop.tasks)


def test_rule_20_ended_tasks_are_forgotten_but_not_their_unheard_errors(caplog: pytest.LogCaptureFixture) -> None:
    life = Life(making_many_tasks)
    assert life.loop.result < 50
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "task.4 failed and nobody awaited it"
    ]


def test_rule_20_turns_in_a_row_leave_the_worker_as_it_was() -> None:
    async def worker() -> list[Any]:
        outer, task, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
        with current.staged():
            lives = [Life(leaving_tasks) for _ in range(3)]
            for life in lives:
                life.finish_step("work")
                assert current_turn() is None
            lives[0].loop.evict()
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        assert sys.get_asyncgen_hooks() == hooks
        assert gc.isenabled()
        await asyncio.wait_for(asyncio.create_task(asyncio.sleep(0)), 5)
        return [life.seen[-1].open for life in lives]

    assert asyncio.run(worker()) == [[("work", ".1.1:1"), ("work", ".2.1:1")]] * 3
