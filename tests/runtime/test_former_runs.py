"""A process that lives for ever loses its former runs after their retention, and goes on as if they were there."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.runtime.options import WorkerOptions
from perdure.runtime.sweeps import finished_long_ago
from perdure.turns.mailbox import Call
from perdure.turns.publication import publish
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, until

charged: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_charged() -> None:
    charged.clear()


@step
async def charge(month: int) -> int:
    charged.append(f"charge {month}")
    return month


@workflow
async def subscription(month: int) -> str:
    """Each month a charge, a question answered, and a signal that ends the month."""
    publish("paid", await charge(month))
    call = await receive("how much", Call[int])
    call.answer(month)
    if await receive("over", str) == "for good":
        return f"{month} months"
    continue_as_new(month + 1)
    return ""


async def months(engine: Engine, handle: Any, first: int, last: int) -> None:
    for month in range(first, last + 1):
        assert await handle.call("how much", 0, int, key=f"ask {month}", timeout=LIMIT) == month
        await handle.signal("over", "not yet", key=f"over {month}")
    await until(lambda: f"charge {last + 1}" in charged)


async def pruned(engine: Engine) -> None:
    worker = engine.worker
    assert worker is not None
    await finished_long_ago.sweep(worker.context)
    while finished_long_ago.more(worker.context):
        await finished_long_ago.sweep(worker.context)


async def test_a_process_whose_former_runs_are_gone_answers_publishes_and_ends_as_ever(opened: Open) -> None:
    options = WorkerOptions(retention_seconds=0, key_retention_seconds=3600)
    engine, _ = await opened(work=True, workflows=[subscription], options=options)
    handle = await engine.start(subscription, 1)
    await months(engine, handle, 1, 4)
    await pruned(engine)
    assert engine.metrics()["runs_pruned"] == 3
    assert [await handle.history(run=run) == [] for run in (3, 4, 5)] == [False] * 3
    assert [event.name for run in (1, 2, 3) for event in await handle.history(run=run)][:2] == [
        "how much:1",
        "how much:3",
    ]
    assert await handle.call("how much", 0, int, key="ask 2", timeout=LIMIT) == 2, "its key is known for an hour"
    followed = handle.values("paid", int, run=1, follow=False)
    assert [value async for value in followed] == [4, 5]
    assert await handle.value("paid", int) == 5
    await months(engine, handle, 5, 5)
    await handle.call("how much", 0, int, timeout=LIMIT)
    await handle.signal("over", "for good")
    assert await handle.result(LIMIT) == "6 months"
    assert charged == [f"charge {month}" for month in range(1, 7)]


async def test_a_process_is_replayed_retried_and_restarted_after_its_former_runs_are_gone(opened: Open) -> None:
    options = WorkerOptions(retention_seconds=0, key_retention_seconds=0)
    engine, _ = await opened(work=True, workflows=[subscription], options=options)
    handle = await engine.start(subscription, 1)
    await handle.signal("over", "not yet")  # it comes before its time: the first run hears it, and receives it later
    await handle.signal("over", "not yet")
    await handle.signal("over", "not yet")
    for month in (1, 2, 3):
        assert await handle.call("how much", 0, int, timeout=LIMIT) == month
    await until(lambda: "charge 4" in charged)
    await pruned(engine)
    await handle.hold(who="Ann")
    await handle.restart(who="Ann")
    await until(lambda: charged.count("charge 4") == 2)
    await pruned(engine)
    await handle.call("how much", 0, int, timeout=LIMIT)
    await handle.signal("over", "for good")
    assert await handle.result(LIMIT) == "4 months"
