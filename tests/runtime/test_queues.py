"""Queues: which worker takes which tasks, how many at once, and in which order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, InvalidInput, ProcessCancelled
from perdure.kernel.claim import Claim
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until

done: list[Any] = []
running: set[str] = set()
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    running.clear()
    gates.clear()


@step(queue="till", retry=Retry.NONE)
async def hold_up(name: str) -> str:
    running.add(name)
    done.append(len(running))
    await gates["go"].wait()
    running.discard(name)
    return name


@workflow
async def holds_up(names: list[str]) -> list[str]:
    return await asyncio.gather(*map(hold_up, names))


async def test_a_worker_runs_no_more_tasks_of_a_queue_at_once_than_it_is_told(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[holds_up], queues={"till": 2})
    names = [f"customer {n}" for n in range(7)]
    handle = await engine.start(holds_up, names)
    await until(lambda: len(running) == 2)
    gates["go"].set()
    assert await handle.result(LIMIT) == names
    assert max(done) == 2


@step
async def time_left() -> float:
    return attempt().remaining()


@workflow
async def looks_at_the_time() -> list[float]:
    return [await time_left(), await time_left.options(queue="till")(), await time_left.options(timeout=5)()]


async def test_a_step_that_is_queued_at_one_place_has_a_minute_there(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[looks_at_the_time], queues=["till"])
    here, queued, short = await (await engine.start(looks_at_the_time)).result(LIMIT)
    assert 60 < here <= 3600
    assert 5 < queued <= 60
    assert 0 < short <= 5


async def test_parents_that_wait_in_hand_leave_room_for_their_tasks(opened: Open) -> None:
    gates["go"].set()
    engine, _ = await opened(work=True, workflows=[holds_up], queues=["till"], options=WorkerOptions(in_flight=3))
    handles = [await engine.start(holds_up, [f"{n}"]) for n in range(9)]
    async with asyncio.timeout(LIMIT):
        assert [await handle.result() for handle in handles] == [[f"{n}"] for n in range(9)]


@step(queue="bench", retry=Retry.NONE)
async def seat(name: str) -> str:
    done.append(name)
    return name


@workflow
async def seats(names: dict[str, int]) -> None:
    await asyncio.gather(*(seat.options(priority=priority)(name) for name, priority in names.items()))


async def test_among_waiting_tasks_the_more_urgent_go_first(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[seats], queues=[])
    handle = await engine.start(seats, {"calm": 9, "first": 0, "usual": 4, "second": 1})
    async with asyncio.timeout(LIMIT):
        while len(await engine.list(Search(kind="@bench"))) < 4:
            await asyncio.sleep(0)
    other, _ = await opened(work=True, workflows=[], queues={"bench": 1})
    await handle.result(LIMIT)
    assert done == ["first", "second", "usual", "calm"]
    assert other.metrics()["steps"] == 4


@workflow
async def seats_at(label: str) -> str:
    return await seat.options(label=label)("x")


async def test_a_labelled_task_goes_to_a_worker_that_has_the_label(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[seats_at], queues=["bench"])
    other, _ = await opened(work=True, workflows=[], queues=["bench"], labels=["till-3"])
    assert await (await engine.start(seats_at, "till-3")).result(LIMIT) == "x"
    assert (engine.metrics()["steps"], other.metrics()["steps"]) == (0, 1)


@step(name="stamp", queue="desk")
async def stamp_red(letter: str) -> str:
    return f"red {letter}"


@step(name="stamp", queue="desk")
async def stamp_blue(letter: str) -> str:
    return f"blue {letter}"


@step(name="stamp")
async def stamp_black(letter: str) -> str:
    return f"black {letter}"


@workflow
async def stamps(letter: str) -> list[str]:
    black = stamp_black.options(queue="desk")
    return await asyncio.gather(stamp_red(letter), black(letter), stamp_blue(letter))


async def test_steps_of_one_name_that_wait_in_one_queue_are_each_run_as_asked_for(opened: Open) -> None:
    shop, _ = await opened(work=True, workflows=[stamps], queues=[])
    await opened(work=True, workflows=[], queues=["desk"])
    assert await (await shop.start(stamps, "x")).result(LIMIT) == ["red x", "black x", "blue x"]


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "2"])
async def test_a_limit_that_makes_no_sense_is_refused(opened: Open, most: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number from 1"):
        await opened(work=True, workflows=[], queues={"bench": most})


@workflow
async def seats_with_patience(attempts: int) -> str:
    return await seat.options(retry=Retry(attempts=attempts, first=0.5))("x")


async def test_a_queued_step_may_be_asked_for_with_a_policy_of_its_own(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[seats_with_patience], queues=["bench"])
    assert await (await engine.start(seats_with_patience, 7)).result(LIMIT) == "x"


@workflow
async def seats_in_an_hour() -> str:
    return await seat.options(delay=3600)("x")


async def test_a_delayed_task_is_given_to_nobody_before_its_time(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[seats_in_an_hour], queues=["bench"])
    handle = await engine.start(seats_in_an_hour)
    async with asyncio.timeout(LIMIT):
        while not (found := await engine.store.search(Search(kind="@bench"))):
            await asyncio.sleep(0)
    [task] = found
    parent = await engine.row(handle.id)
    assert task.due_at == parent.created_at + 3600 * 1_000_000
    await handle.signal("nothing")  # whatever wakes the worker
    assert engine.worker is not None
    await engine.store.claim(Claim(engine.worker.incarnation.id, (("@bench", ""),), 10, 1_000_000))
    [task] = await engine.store.search(Search(kind="@bench"))
    assert (task.owner, task.opened_at, done) == (None, None, [])
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(timeout=LIMIT)


def test_a_delay_that_is_longer_than_the_time_in_all_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the longer one"):
        seat.options(delay=60, total=60)
