"""Locks, events and queues of asyncio: each belongs to the one process in whose turn it was made."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import step, workflow
from perdure.errors import ProcessFailed
from tests.runtime.conftest import LIMIT, Open, engines_on, until

LOCK = asyncio.Lock()
EVENT = asyncio.Event()
CONDITION = asyncio.Condition()
SEMAPHORE = asyncio.Semaphore(2)
BOUNDED = asyncio.BoundedSemaphore(2)
QUEUE: asyncio.Queue[int] = asyncio.Queue()
PRIORITIES: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
BARRIER = asyncio.Barrier(1)
SHELF: dict[str, Any] = {}
done: list[str] = []


async def _notify() -> None:
    CONDITION.notify_all()


async def _set() -> None:
    EVENT.set()


async def _put_now() -> None:
    QUEUE.put_nowait(1)


USES: dict[str, Callable[[], Awaitable[Any]]] = {
    "an uncontended lock": lambda: LOCK.acquire(),
    "an event that is waited for": lambda: EVENT.wait(),
    "an event that is set": _set,
    "a condition": _notify,
    "a semaphore": lambda: SEMAPHORE.acquire(),
    "a bounded semaphore": lambda: BOUNDED.acquire(),
    "a queue that is taken from": lambda: QUEUE.get(),
    "a queue that is put into": _put_now,
    "a queue with priorities": lambda: PRIORITIES.get(),
    "a barrier": lambda: BARRIER.wait(),
}


@workflow
async def uses(what: str) -> None:
    await USES[what]()


@pytest.mark.parametrize("what", USES)
async def test_a_primitive_of_a_module_is_refused_at_its_first_use_in_a_turn(sqlite_url: str, what: str) -> None:
    async with engines_on(sqlite_url) as opened:
        engine, _ = await opened(work=True, workflows=[uses])
        handle = await engine.start(uses, what)
        with pytest.raises(ProcessFailed, match=r"not made by this process.*Make the .* inside the workflow"):
            await handle.result(LIMIT)


@step
async def note(text: str) -> None:
    done.append(text)


@workflow
async def lends() -> None:
    lock = SHELF.setdefault("lock", asyncio.Lock())
    async with lock:
        await note("has it")
        await asyncio.sleep(3600)


async def test_a_lock_that_one_process_has_made_is_refused_to_another_and_does_not_hang_it(opened: Open) -> None:
    SHELF.clear()
    done.clear()
    engine, _ = await opened(work=True, workflows=[lends])
    await engine.start(lends)
    await until(lambda: done)
    with pytest.raises(ProcessFailed, match=r"an asyncio\.Lock that was not made by this process"):
        await (await engine.start(lends)).result(LIMIT)
    assert done == ["has it"]


@workflow
async def works_itself() -> list[int]:
    lock, event, semaphore = asyncio.Lock(), asyncio.Event(), asyncio.BoundedSemaphore(1)
    queue: asyncio.Queue[int] = asyncio.Queue(1)
    condition, barrier = asyncio.Condition(), asyncio.Barrier(2)
    got: list[int] = []

    async def take() -> None:
        async with lock, semaphore:
            for _ in range(3):
                got.append(await queue.get())
                queue.task_done()
        async with condition:
            condition.notify_all()
        event.set()
        await barrier.wait()

    taking = asyncio.create_task(take())
    for number in range(3):
        await note(str(number))
        await queue.put(number)
    await queue.join()
    await event.wait()
    await barrier.wait()
    await taking
    return got


async def test_what_a_process_makes_itself_works_as_ever_and_in_a_later_life_too(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[works_itself])
    done.clear()
    handle = await engine.start(works_itself)
    await until(lambda: done)
    assert engine.worker is not None
    with contextlib.suppress(KeyError):
        engine.worker.scheduler.release(engine.worker.scheduler.instances[handle.id_bytes])
    assert await handle.result(LIMIT) == [0, 1, 2]


@step
async def locks_outside() -> bool:
    async with SHELF["lock"], SHELF["semaphore"]:
        await asyncio.sleep(0)
    return bool(SHELF["lock"].locked())


@workflow
async def has_it_locked() -> bool:
    return await locks_outside()


async def test_steps_and_everything_else_outside_of_turns_may_share_them(opened: Open) -> None:
    SHELF.update(lock=asyncio.Lock(), semaphore=asyncio.Semaphore(2))
    engine, _ = await opened(work=True, workflows=[has_it_locked])
    handles = [await engine.start(has_it_locked) for _ in range(3)]
    for handle in handles:
        await handle.result(LIMIT)
    queue: asyncio.Queue[int] = asyncio.Queue()
    queue.put_nowait(1)
    assert await queue.get() == 1


SHARED: list[asyncio.Future[Any]] = []


@workflow
async def shares_a_future(first: bool) -> None:
    if first:
        SHARED.append(asyncio.get_running_loop().create_future())
        await note("made")
    await SHARED[0]


async def test_a_future_of_another_process_is_refused_to_who_awaits_it(opened: Open) -> None:
    SHARED.clear()
    done.clear()
    engine, _ = await opened(work=True, workflows=[shares_a_future])
    await engine.start(shares_a_future, True)
    await until(lambda: done)
    with pytest.raises(ProcessFailed, match="attached to a different loop"):
        await (await engine.start(shares_a_future, False)).result(LIMIT)


def test_the_guard_knows_every_public_method_that_touches_the_state() -> None:
    from perdure.turns.sandbox.loop_bound import GUARDED

    for kind, names in GUARDED.items():
        public = {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}
        assert public <= set(names.split()), kind
