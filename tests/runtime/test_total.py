"""A task's total time: what is in the queue when it is over never begins, what is at work ends, or may still end."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, ProcessFailed
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps import process_overdue
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until

begun: list[str] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
TOTAL = 0.5


@pytest.fixture(autouse=True)
def _nothing_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun.clear()
    gates.clear()
    monkeypatch.setattr(process_overdue, "SECONDS", 0.05)


@step(queue="bank", retry=Retry(attempts=9, first=0.01, cap=0.01))
async def pay_in_time(name: str) -> str:
    begun.append(name)
    await gates["go"].wait()
    if name == "poor":
        raise ValueError("no money")
    return name


@workflow
async def pays_in_time(name: str, force: bool) -> str:
    return await pay_in_time.options(total=TOTAL, total_force=force)(name)


async def _over(engine: Any) -> None:
    """Wait until the total time of the task is over, by the store's clock."""
    async with asyncio.timeout(LIMIT):
        while not (found := await engine.store.search(Search(kind="@bank"))):
            await asyncio.sleep(0.001)
        [task] = found
        while await engine.store.now() <= (task.deadline or 0):
            await asyncio.sleep(0.001)


async def test_with_force_an_attempt_at_work_fails_when_the_total_time_is_over(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[pays_in_time], queues=["bank"])
    handle = await engine.start(pays_in_time, "a", True)
    await until(lambda: begun)
    with pytest.raises(ProcessFailed, match="DeadlineExceeded"):
        await handle.result(LIMIT)


async def test_without_force_an_attempt_at_work_may_end_after_the_total_time(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[pays_in_time], queues=["bank"])
    handle = await engine.start(pays_in_time, "a", False)
    await until(lambda: begun)
    await _over(engine)
    [task] = await engine.store.search(Search(kind="@bank"))
    await process_overdue.sweep(engine.worker.context)  # type: ignore[union-attr]
    assert (await engine.row(task.id)).status is Status.RUNNING
    gates["go"].set()
    assert await handle.result(LIMIT) == "a"
    assert begun == ["a"]


async def test_without_force_no_attempt_begins_after_the_total_time(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[pays_in_time], queues=["bank"])
    handle = await engine.start(pays_in_time, "poor", False)
    await until(lambda: begun)
    await _over(engine)
    gates["go"].set()
    with pytest.raises(ProcessFailed, match="DeadlineExceeded"):
        await handle.result(LIMIT)
    assert begun == ["poor"]


@pytest.mark.parametrize("force", [True, False])
async def test_what_is_in_the_queue_when_its_total_time_is_over_never_begins(opened: Open, force: bool) -> None:
    engine, _ = await opened(work=True, workflows=[pays_in_time], queues=["bank"])
    await engine.queues.block("bank")
    handle = await engine.start(pays_in_time, "a", force)
    with pytest.raises(ProcessFailed, match="DeadlineExceeded"):
        await handle.result(LIMIT)
    await engine.queues.unblock("bank")
    assert begun == []


async def test_a_worker_that_gets_a_task_after_its_total_time_does_not_begin_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "start", lambda *_, **__: None)  # no sweep ends it first
    engine, _ = await opened(work=True, workflows=[pays_in_time], queues=[])
    await engine.start(pays_in_time, "a", True)
    await _over(engine)
    late, _ = await opened(work=True, workflows=[], queues=["bank"])
    await until(lambda: late.metrics()["claims"])
    await until(lambda: not late.metrics()["in_hand"])
    assert begun == []


def test_what_makes_no_sense_is_refused_when_it_is_set() -> None:
    with pytest.raises(DefinitionError, match="no total="):
        pay_in_time.options(total_force=False)
    with pytest.raises(DefinitionError, match="True or False"):
        pay_in_time.options(total=5, total_force="no")  # type: ignore[arg-type]
