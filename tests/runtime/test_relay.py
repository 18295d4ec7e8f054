"""Async steps that share a task notice nothing of each other; one that waits has it for itself."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from tests.runtime.conftest import LIMIT, Open

MANY = 30
mark: ContextVar[int] = ContextVar("mark", default=0)
arrived: list[Any] = []
all_here: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
async def _nobody_here() -> None:
    arrived.clear()
    all_here[:] = [asyncio.Event()]


@step
async def marked(number: int, wait: bool) -> list[int]:
    before = mark.get()
    mark.set(number)
    if wait:
        await asyncio.sleep(0)
    return [before, mark.get()]


@step
async def met(number: int) -> int:
    arrived.append(asyncio.current_task())
    if len(arrived) == MANY:
        all_here[0].set()
    await all_here[0].wait()
    return number


@step
async def cancels_itself(number: int) -> int:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return number


@step
async def hurried(number: int) -> str:
    if number % 2:
        return "at once"
    try:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    except TimeoutError:
        return "timed out"
    return "never"


@workflow
async def all_marked() -> list[list[int]]:
    return list(await asyncio.gather(*(marked(number, number % 3 == 0) for number in range(1, MANY))))


@workflow
async def all_met() -> list[int]:
    return list(await asyncio.gather(*(met(number) for number in range(MANY))))


@workflow
async def all_cancel_themselves() -> list[int]:
    return list(await asyncio.gather(*(cancels_itself(number) for number in range(MANY))))


@workflow
async def all_hurried() -> list[str]:
    return list(await asyncio.gather(*(hurried(number) for number in range(MANY))))


async def result(opened: Open, flow: Any) -> Any:
    engine, _ = await opened(work=True, workflows=[flow])
    return await (await engine.start(flow)).result(LIMIT)


async def test_a_step_has_a_context_of_its_own_whether_it_waits_or_not(opened: Open) -> None:
    assert await result(opened, all_marked) == [[0, number] for number in range(1, MANY)]


async def test_steps_that_wait_for_each_other_are_all_under_way_each_in_its_task(opened: Open) -> None:
    assert await result(opened, all_met) == list(range(MANY))
    assert len({id(task) for task in arrived}) == MANY


async def test_a_step_that_cancels_its_task_and_ends_cancels_no_other(opened: Open) -> None:
    assert await result(opened, all_cancel_themselves) == list(range(MANY))


async def test_a_time_limit_inside_a_step_is_for_that_step_alone(opened: Open) -> None:
    assert await result(opened, all_hurried) == ["timed out", "at once"] * (MANY // 2)
