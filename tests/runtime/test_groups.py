"""Several steps at once: groups that fail, steps that nobody awaits, and code that will not be cancelled."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import ProcessCancelled
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
ONCE = Retry.NONE


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


async def names(engine: Any, id: str) -> list[str]:
    return [event.type.name for event in await engine.process(id).history()]


@step(retry=ONCE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def one_gate(name: str) -> str:
    return await gated(name)


@step(retry=ONCE)
async def broken_at_once() -> None:
    raise ValueError("no")


@workflow
async def grouped() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(one_gate.function("slow"))
            group.create_task(broken_at_once())  # type: ignore[arg-type]
    except ExceptionGroup as group_of_errors:
        return f"{len(group_of_errors.exceptions)} failed"
    return "never"


async def test_when_one_of_a_group_fails_the_others_are_cancelled(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[grouped])
    handle = await engine.start(grouped)
    assert await handle.result(LIMIT) == "1 failed"
    await until(lambda: engine.metrics()["in_hand"] == 0)
    gates["slow"].set()
    assert (await names(engine, handle.id)).count("STEP_COMPLETED") == 0


@workflow
async def leaves_open() -> str:
    _ = gated("open")
    await gated("awaited")
    return "done"


async def test_rule_20_a_step_that_nobody_awaited_is_cancelled_at_the_end_and_told_of(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[leaves_open])
    handle = await engine.start(leaves_open)
    await until(lambda: len(done) == 2)
    gates["awaited"].set()
    assert await handle.result(LIMIT) == "done"
    gates["open"].set()
    assert (await engine.row(handle.id)).status is Status.COMPLETED
    assert await names(engine, handle.id) == ["STEP_COMPLETED", "COMPLETED"]
    assert "'gated' at place 1 was still open" in caplog.text


@workflow
async def stubborn() -> str:
    refused = 0
    while refused < 2:
        try:
            await receive("never")
        except asyncio.CancelledError:
            refused += 1
    return await receive("never", str)


async def test_a_workflow_may_refuse_to_be_cancelled_for_a_while(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[stubborn])
    handle = await engine.start(stubborn)
    for number in (1, 2):
        await handle.cancel()
        await until_row(engine, handle.id, lambda row, number=number: row.seen == number)
        assert (await engine.row(handle.id)).status is Status.RUNNING
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
