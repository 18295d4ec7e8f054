"""Errors of the store that pass break no process and use up no attempt; what the store does not know is not lost."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from perdure import Retry, attempt, receive, step, workflow
from perdure.errors import ProcessFailed, StoreFull, StoreRegressed, StoreUnavailable
from perdure.kernel.process import Status
from tests.runtime.conftest import LIMIT, Open, lose, until

ONCE = Retry.NONE
numbers: list[int] = []
keys: list[str] = []
held = asyncio.Event()


@pytest.fixture(autouse=True)
def _anew() -> None:
    global held
    numbers.clear()
    keys.clear()
    held = asyncio.Event()


@step(retry=ONCE)
async def add(number: int) -> int:
    numbers.append(attempt().number)
    return number


@workflow
async def adding(number: int) -> int:
    return await add(number)


@workflow
async def family(number: int) -> int:
    """A step, a timer, a child and a signal: every door of the store."""
    total = await add(number)
    await asyncio.sleep(0.01)
    total += await adding.child(number)
    return total + await receive("more", int)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("error", [StoreUnavailable, StoreFull, StoreRegressed])
async def test_a_store_that_fails_for_a_while_at_every_door_breaks_nothing_and_costs_no_attempt(
    opened: Open, error: type[StoreUnavailable], side: str
) -> None:
    client, _ = await opened()
    handle = await client.start(family, 1)
    engine, store = await opened(work=True, workflows=[adding, family])
    failed: Counter[str] = Counter()

    async def fails(name: str, argument: object) -> None:
        if not failed[name]:
            failed[name] += 1
            raise error("it does not answer")

    setattr(store, side, fails)
    await handle.signal("more", 5)
    assert await handle.result(LIMIT) == 7
    assert numbers == [1, 1], "each step was called once, as its first attempt"
    assert failed["claim"] == failed["commit"] == 1
    metrics = engine.metrics()
    assert (metrics["broken"], metrics["step_failures"], metrics["failed"]) == (0, 0, 0)
    names = [event.type.name for event in await handle.history()]
    assert "ATTEMPT_FAILED" not in names and names[-1] == "COMPLETED"


@step(retry=ONCE)
async def hold() -> str:
    keys.append(attempt().idempotency_key)
    await held.wait()
    return "done"


@workflow
async def holding() -> str:
    return await hold()


async def test_a_step_of_which_the_store_knows_nothing_yet_runs_again_when_its_worker_has_died(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[holding])
    handle = await first.start(holding)
    await until(lambda: keys)
    assert list(await handle.history()) == [], "no event says that the step was asked for, or has begun"
    row = await first.row(handle.id)
    assert row.status is Status.RUNNING and row.due_at is not None and row.owner is not None, "its lease ends"
    second, _ = await opened(work=True, workflows=[holding])
    await lose(first, store)
    await until(lambda: len(keys) == 2)
    held.set()
    assert await second.process(handle.id, str).result(LIMIT) == "done"
    assert keys[0] == keys[1], "it is the same step to whom it calls"
    names = [event.type.name for event in await second.process(handle.id).history()]
    assert names == ["REVIVED", "STEP_COMPLETED", "COMPLETED"]


@step(retry=ONCE, timeout=0.3)
async def hang() -> None:
    keys.append(attempt().idempotency_key)
    await asyncio.Event().wait()


@workflow
async def hanging() -> None:
    await hang()


async def test_a_step_that_hangs_is_ended_at_its_time_limit_by_whichever_worker_has_it_then(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[hanging])
    handle = await first.start(hanging)
    await until(lambda: keys)
    second, _ = await opened(work=True, workflows=[hanging])
    await lose(first, store)
    with pytest.raises(ProcessFailed) as failed:
        await second.process(handle.id).result(LIMIT)
    assert failed.value.type == "StepTimeout"
    assert len(keys) == 2 and keys[0] == keys[1]
