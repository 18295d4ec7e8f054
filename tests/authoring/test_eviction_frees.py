"""What is evicted is freed by its references: the collector seldom looks at what has lived as long as a process waits.

A worker that lets go of a thousand processes a second would otherwise hold all of them until the collector's oldest
generation has its turn.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from perdure import receive, saga
from perdure.authoring.step import step
from perdure.kernel.message import MessageType
from perdure.turns.loop import TurnLoop
from tests.authoring.life import SECOND, Life
from tests.garbage import unreachable


@step
async def ask() -> None: ...


@step(undo=ask)
async def undone() -> None: ...


async def a_step() -> None:
    await ask()


async def a_timer() -> None:
    await asyncio.sleep(60)


async def a_message() -> None:
    await receive("go")


async def a_message_for_a_while() -> None:
    await receive("go", timeout=60)


async def a_scope() -> None:
    async with saga():
        await undone()


async def a_limit() -> None:
    async with asyncio.timeout(60):
        await ask()


async def a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(a_step())
        group.create_task(a_timer())
        await group.create_task(a_message())


async def a_gathering() -> None:
    await asyncio.gather(a_step(), a_timer(), a_message_for_a_while(), a_group())


async def the_first_of_several() -> None:
    tasks = [asyncio.create_task(one()) for one in (a_step, a_timer, a_limit)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def whoever_comes_first() -> None:
    for one in asyncio.as_completed([a_step(), a_timer()]):
        await one


async def what_is_shielded() -> None:
    await asyncio.shield(asyncio.wait_for(asyncio.create_task(a_step()), 60))


async def a_task_that_awaits_one_made_before() -> None:
    first = asyncio.create_task(a_step())

    async def waits() -> None:
        await first

    await asyncio.create_task(waits())


async def those_who_wait_for_each_other() -> None:
    lock, begun, queue = asyncio.Lock(), asyncio.Event(), asyncio.Queue[int]()

    async def locked() -> None:
        async with lock:
            await begun.wait()

    async with asyncio.TaskGroup() as group:
        for one in (locked, locked, queue.get, begun.wait):
            group.create_task(one())  # type: ignore[arg-type]
        await asyncio.Barrier(2).wait()


async def a_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in range(10):
            await ask()
            yield n

    async for _ in numbers():
        pass


async def clean_up() -> None:
    try:
        await ask()
    finally:
        await ask()


WAITS: list[Callable[[], Awaitable[None]]] = [
    a_step, a_timer, a_message, a_message_for_a_while, a_scope, a_limit, a_group, a_gathering, the_first_of_several,
    whoever_comes_first, what_is_shielded, a_task_that_awaits_one_made_before,
    a_generator, clean_up,
]  # fmt: skip


class Flow:
    """A function, as a life runs it."""

    def __init__(self, function: Callable[[], Awaitable[None]]) -> None:
        async def code() -> None:
            await function()

        self.function = code


@pytest.mark.parametrize("wait", [*WAITS, those_who_wait_for_each_other], ids=lambda wait: wait.__name__)
def test_what_is_evicted_is_freed_without_the_collector(wait: Callable[[], Awaitable[None]]) -> None:
    loop = Life(Flow(wait)).loop
    gc.collect()
    gc.disable()
    try:
        loop.evict()
        del loop
        assert unreachable() == []
    finally:
        gc.enable()


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
def test_what_has_ended_is_freed_without_the_collector(wait: Callable[[], Awaitable[None]]) -> None:
    gc.collect()
    gc.disable()
    try:
        loop = ended(wait)
        loop.evict()
        del loop
        assert unreachable() == []
    finally:
        gc.enable()


def ended(wait: Callable[[], Awaitable[None]]) -> TurnLoop:
    """The loop of a life that has come to its end."""
    life = Life(Flow(wait))
    while not life.loop.finished:
        letters = [("message", MessageType.SIGNAL, "go", b"1")] if "signal go" in life.loop.awaiting() else []
        answers = [life.answer(ask) for ask in life.loop.open.values()]
        due = life.loop.due_timers(life.now + 60 * SECOND) if not (letters or answers) else []
        assert letters or answers or due, life.loop.awaiting()
        life.turn(*letters, *answers, *(("timer", place) for _, place in due), after=60.0 if due else 0.0)
    return life.loop
