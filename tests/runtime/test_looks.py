"""Looks for letters in the store that the code cuts short: whoever replays the history goes the same way."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open, until_row

ways: list[str] = []


@step(retry=Retry.NONE)
async def tidy() -> str:
    return "tidy"


async def hasty() -> None:
    try:
        await receive("quiet", timeout=0)
    except TimeoutError:
        ways.append("on")
        await receive("never")


async def falling() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
    raise ValueError("fallen")


@workflow
async def falls_while_it_looks() -> None:
    await receive("go")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(hasty())
            group.create_task(falling())
    finally:
        await tidy()


async def test_a_failed_process_that_cut_a_look_short_is_replayed_as_it_was_when_it_is_tried_again(
    opened: Open,
) -> None:
    ways.clear()
    engine, _ = await opened(work=True, workflows=[falls_while_it_looks], options=WorkerOptions(cached=0))
    handle = await engine.start(falls_while_it_looks)
    await handle.signal("other")  # it stays in the store, so that a worker does not know whether it is "quiet"
    await until_row(engine, handle.id, lambda row: row.seen == 1 and row.owner is None)
    await handle.signal("go")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    history = await engine.store.history(handle.id_bytes, 1)
    assert [event.turn for event in history if event.type is EventType.LOOK_CUT_SHORT] == [0]
    await handle.retry()
    with pytest.raises(ProcessFailed):  # and not ProcessBroken: its history fits
        await handle.result(LIMIT)
    assert ways == []
