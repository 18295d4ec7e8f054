"""Asks that the code takes back: by a timeout, a failing neighbour, a cancel, or by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import StepError
from tests.authoring.life import Life


@step
async def work(name: str = "") -> str:
    return name


@step
def refuse() -> None:
    raise ValueError("no")


@workflow
async def racing() -> str:
    try:
        async with asyncio.timeout(10):
            async with asyncio.TaskGroup() as group:
                group.create_task(_and_sleep(work("slow")))
                group.create_task(work("slower"))
    except TimeoutError:
        never = work("never")
        never.cancel()
        return await work("late")
    return ""


async def _and_sleep(promise: Any) -> None:
    await promise
    await asyncio.sleep(60)


def test_asks_taken_back_are_dropped_and_one_cancelled_in_the_turn_that_made_it_is_in_neither_list() -> None:
    life = Life(racing)
    assert [raw for _, _, raw in life.seen[0].asked] == [b'["slow"]', b'["slower"]']
    life.finish_step("work", after=1)
    seen = life.fire()
    assert seen.dropped == [("work", "2")]
    assert [raw for _, _, raw in seen.asked] == [b'["late"]']
    assert seen.open == [("work", "4")]
    assert seen.timers == []
    life.check_replays()


@workflow
async def waiting_too_long() -> str:
    try:
        await asyncio.wait_for(work("slow"), 3)
    except TimeoutError:
        return await asyncio.wait_for(work("quick"), 3)
    return ""


def test_a_step_that_is_waited_for_too_long_is_dropped_and_so_is_the_timer_of_one_that_came() -> None:
    life = Life(waiting_too_long)
    seen = life.fire()
    assert (seen.dropped, seen.open) == ([("work", "1")], [("work", "2")])
    seen = life.finish_step("work", "2", after=1)
    assert (seen.outcome, seen.timers) == ('"quick"', [])
    life.check_replays()


@workflow
async def gathering_beside_a_failure() -> int:
    failed = 0
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work("a"))
            group.create_task(_both())
            group.create_task(refuse())
    except* StepError as errors:
        failed = len(errors.exceptions)
    return failed


async def _both() -> list[str]:
    return await asyncio.gather(work("b"), asyncio.shield(work("c")))


def test_the_steps_of_a_failed_group_are_dropped_but_not_what_is_shielded() -> None:
    life = Life(gathering_beside_a_failure)
    seen = life.finish_step("refuse")
    assert seen.outcome == "1"
    assert seen.dropped == [("work", "1"), ("work", ".1:1"), ("work", ".1:2")]
    life.check_replays()


@workflow
async def shielding_from_a_cancel() -> str:
    shielded = asyncio.ensure_future(work("kept"))
    try:
        await asyncio.shield(shielded)
    except asyncio.CancelledError:
        return await shielded
    return ""


def test_a_shielded_step_survives_a_cancel() -> None:
    life = Life(shielding_from_a_cancel)
    seen = life.cancel()
    assert (seen.dropped, seen.open) == ([], [("work", "1")])
    assert life.finish_step("work").outcome == '"kept"'


@workflow
async def cancelled_among_thousands() -> int:
    steps: list[Any] = [work(str(number)) for number in range(3000)]
    gathered = asyncio.gather(*steps)
    await asyncio.sleep(1)
    gathered.cancel()
    return len([None for one in await asyncio.gather(*steps, gathered, return_exceptions=True) if one is not None])


def test_a_cancel_takes_back_thousands_of_steps_in_their_order() -> None:
    life = Life(cancelled_among_thousands)
    seen = life.fire()
    assert seen.dropped == [("work", f"{number}") for number in range(1, 3001)]
    assert seen.outcome == "3001"


@workflow
async def timing_a_step() -> list[Any]:
    heard: list[str] = []
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(1):
            await work()
    except TimeoutError:
        heard.append("too late")

    def end() -> None:
        heard.append("first")
        second.cancel()

    first = loop.call_later(1, end)
    second: asyncio.TimerHandle = loop.call_later(1, heard.append, "second")
    await asyncio.sleep(1)
    second.cancel()
    return [*heard, first.cancelled(), second.cancelled()]


def test_a_timer_that_fires_in_the_turn_in_which_it_is_cancelled_calls_nothing() -> None:
    life = Life(timing_a_step)
    life.turn(life.answer(life.ask("work")), ("timer", "1"), after=1)
    assert not life.loop.troubles
    seen = life.turn(*[("timer", place) for _, place in life.loop.due_timers(1 << 62)], after=1)
    assert seen.outcome == '["first",true,true]'
    life.check_replays()
