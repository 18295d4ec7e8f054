"""Every construct of asyncio works in a workflow: lived in many orders, then replayed whole and in every prefix."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import new_uuid, now, random_source, receive, set_state, workflow
from perdure.errors import StepError
from tests.authoring.life import cancelled_anywhere, lived


@step
async def double(number: int) -> int:
    return 2 * number


@step
async def refund(order: str) -> str:
    return f"refunded {order}"


@step
def refuse(why: str) -> int:
    raise ValueError(why)


@workflow
async def sleeping(seconds: float) -> str:
    before = now()
    await asyncio.sleep(seconds)
    return str(now() - before)


@workflow
async def gathering(size: int) -> list[int]:
    async def twice(number: int) -> int:
        return await double(await double(number))

    tasks = await asyncio.gather(*[twice(number) for number in range(size)])
    steps = await asyncio.gather(*[double(number) for number in tasks])
    return [*steps, *await asyncio.gather(asyncio.sleep(1, 7), double(4))]


@workflow
async def gathering_failures() -> list[str]:
    results = await asyncio.gather(double(1), refuse("no"), asyncio.sleep(1), return_exceptions=True)
    try:
        await asyncio.gather(refuse("again"), double(2))
    except StepError as error:
        return [type(result).__name__ for result in results] + [error.type]
    return []


@workflow
async def grouping() -> list[int]:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_slow(1))
        second = group.create_task(double(10))
        async with asyncio.TaskGroup() as inner:
            third = inner.create_task(_slow(5))
    return [first.result(), second.result(), third.result()]


async def _slow(number: int) -> int:
    await asyncio.sleep(number)
    return await double(number)


@workflow
async def grouping_failures() -> list[str]:
    ended = []

    async def stay(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(await refund(name))

    try:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(stay(name))
            group.create_task(_fail())
    except* StepError as errors:
        ended.append(str(len(errors.exceptions)))
    return ended


async def _fail() -> None:
    await refuse("no")


@workflow
async def waiting() -> list[Any]:
    found: list[Any] = []
    pending: set[Any] = {asyncio.create_task(_slow(number), name=f"t{number}") for number in (3, 1, 2)}
    pending |= {double(20), double(30)}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            found.append(await double(task.result()))
    done, pending = await asyncio.wait([double(1), asyncio.create_task(asyncio.sleep(9))], timeout=5)
    return [found, len(done), len(pending)]


@workflow
async def completing() -> list[int]:
    found = []
    for next_done in asyncio.as_completed([_slow(2), _slow(1), double(7), double(8)]):
        found.append(await double(await next_done))
    try:
        for next_done in asyncio.as_completed([asyncio.sleep(50), double(3)], timeout=2):
            found.append(await next_done)
    except TimeoutError:
        found.append(-1)
    return found


@workflow
async def waiting_for() -> list[Any]:
    found: list[Any] = [await asyncio.wait_for(double(1), 10)]
    try:
        await asyncio.wait_for(asyncio.sleep(100), 3)
    except TimeoutError:
        found.append("late")
    try:
        await asyncio.wait_for(_slow(60), 2)
    except TimeoutError:
        found.append("late again")
    return found


@workflow
async def timing_out() -> list[str]:
    found = []
    try:
        async with asyncio.timeout(5):
            await asyncio.sleep(100)
    except TimeoutError:
        found.append("inner")
    async with asyncio.timeout(50) as limit:
        await double(1)
        limit.reschedule(asyncio.get_running_loop().time() + 20)
        await asyncio.sleep(10)
    found.append(str(limit.expired()))
    try:
        async with asyncio.timeout(2):
            try:
                await asyncio.sleep(60)
            finally:
                found.append(await refund("x"))
    except TimeoutError:
        found.append("outer")
    return found


@workflow
async def shielding() -> list[Any]:
    inner = asyncio.create_task(_slow(10))
    found: list[Any] = []
    try:
        async with asyncio.timeout(3):
            await asyncio.shield(inner)
    except TimeoutError:
        found.append("went on")
    found.append(await inner)
    found.append(await asyncio.shield(double(2)))
    return found


@workflow
async def synchronising() -> list[Any]:
    found: list[Any] = []
    event, lock, slots = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(2)
    condition = asyncio.Condition()
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

    async def produce() -> None:
        for number in range(5):
            await queue.put(await double(number))
        event.set()

    async def consume() -> None:
        while True:
            number = await queue.get()
            async with lock:
                found.append(await double(number))
            queue.task_done()

    async def limited(number: int) -> None:
        async with slots:
            found.append(await _slow(number))

    async def notify() -> None:
        await double(99)
        async with condition:
            condition.notify_all()

    consumers = [asyncio.create_task(consume()) for _ in range(2)]
    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(notify())
        for number in range(4):
            group.create_task(limited(number))
        async with condition:
            await condition.wait()
    await event.wait()
    await queue.join()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    return found


@workflow
async def cleaning_up(order: str) -> str:
    try:
        await double(1)
        try:
            await asyncio.sleep(3600)
            await double(2)
        finally:
            set_state(await refund(order))
            await asyncio.sleep(1)
    except asyncio.CancelledError:
        await refund("at the end")
        raise
    return "completed"


@workflow
async def generating() -> list[int]:
    async def numbers(upto: int) -> AsyncIterator[int]:
        try:
            for number in range(upto):
                yield await double(number)
        finally:
            await refund("generator")

    found = [number async for number in numbers(3)]
    async for number in numbers(10):
        found.append(number)
        if number >= 4:
            break
    async with contextlib.aclosing(numbers(5)) as stream:
        async for number in stream:
            found.append(await double(number))
            break
    return found


@workflow
async def chancing() -> list[Any]:
    generator = random_source()
    first = [generator.random(), str(new_uuid())]
    names = await asyncio.gather(*[_named(number) for number in range(3)])
    return [*first, *names, generator.randint(0, 10**9)]


async def _named(number: int) -> str:
    await double(number)
    return str(new_uuid())


@workflow
async def hearing() -> list[Any]:
    found: list[Any] = [await receive("approval", int)]
    try:
        await receive("never", timeout=5)
    except TimeoutError:
        found.append("nobody")
    both = await asyncio.gather(receive("approval", int), receive("approval", int), double(3))
    return [*found, *both]


@workflow
async def promising() -> int:
    first = double(1)
    second = double(first)
    third = asyncio.create_task(_add(second))
    return await double(number=await third)


async def _add(promise: Any) -> int:
    return int(await promise) + int(await double(promise))


ALL = [
    (sleeping, (2.5,)),
    (gathering, (4,)),
    (gathering_failures, ()),
    (grouping, ()),
    (grouping_failures, ()),
    (waiting, ()),
    (completing, ()),
    (waiting_for, ()),
    (timing_out, ()),
    (shielding, ()),
    (synchronising, ()),
    (cleaning_up, ("A-17",)),
    (generating, ()),
    (chancing, ()),
    (promising, ()),
]


@pytest.mark.parametrize(("flow", "args"), ALL, ids=lambda value: getattr(value, "name", ""))
def test_what_was_lived_in_any_order_replays_to_the_same_asks_and_the_same_end(flow: Any, args: Any) -> None:
    outcomes = lived(flow, *args)
    assert not [outcome for outcome in outcomes if "Error: " in outcome], outcomes


@pytest.mark.parametrize(("flow", "args"), ALL, ids=lambda value: getattr(value, "name", ""))
def test_a_cancel_at_any_turn_replays_to_the_same_asks_and_the_same_end(flow: Any, args: Any) -> None:
    cancelled_anywhere(flow, *args, seeds=4)


def test_signals_replay_in_the_order_in_which_they_were_delivered() -> None:
    letters = [("approval", 1), ("approval", 2), ("other", 0), ("approval", 3)]
    assert lived(hearing, signals=lambda: letters) == {'[1,"nobody",2,3,6]'}


def test_sleep_lasts_as_long_as_the_store_says() -> None:
    assert lived(sleeping, 2.5) == {'"0:00:02.500000"'}


def test_gather_keeps_the_order_of_its_arguments() -> None:
    assert lived(gathering, 3) == {"[0,8,16,7,8]"}


def test_gather_returns_or_raises_failures() -> None:
    assert lived(gathering_failures) == {'["int","StepError","NoneType","ValueError"]'}


def test_a_failing_task_ends_its_group_and_the_clean_up_of_the_others_runs_steps_in_creation_order() -> None:
    outcomes = lived(grouping_failures)
    assert all(outcome.endswith('"1"]') for outcome in outcomes)
    assert '["refunded a","refunded b","refunded c","1"]' in outcomes


def test_timeouts_expire_at_their_time_and_let_clean_up_run() -> None:
    assert lived(timing_out) == {'["inner","False","refunded x","outer"]'}
    assert lived(waiting_for) == {'[2,"late","late again"]'}


def test_a_shielded_task_goes_on() -> None:
    assert lived(shielding) == {'["went on",20,4]'}


def test_an_asynchronous_generator_left_open_is_closed_at_the_end_of_the_workflow() -> None:
    assert lived(generating) == {"[0,2,4,0,2,4,0]"}


def test_a_promise_is_resolved_before_the_step_that_takes_it_is_asked_for() -> None:
    assert lived(promising) == {"24"}


def test_the_clean_up_of_a_cancelled_workflow_runs_steps() -> None:
    assert cancelled_anywhere(cleaning_up, "A-17") == {"cancelled", '"completed"'}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks_start_at_once_and_replay_alike() -> None:
    assert lived(eager) == {"[[2,8],4,12,16]"}
    cancelled_anywhere(eager, seeds=3)


@workflow
async def eager() -> list[Any]:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)

    async def nested(number: int) -> int:
        inner = asyncio.create_task(double_twice(number))
        return await inner

    async def double_twice(number: int) -> int:
        return await double(await double(number))

    async def at_once() -> int:
        return 4

    pair = await asyncio.gather(double(1), asyncio.create_task(nested(2)))
    quick = await asyncio.create_task(at_once())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(nested(number)) for number in (3, 4)]
    return [pair, quick, *(task.result() for task in tasks)]
