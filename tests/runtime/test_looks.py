"""Looks for letters in the store that the code cuts short: whoever replays the history goes the same way."""

from __future__ import annotations

import asyncio

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.testing.faults import Gate
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, lose, until_row

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


@workflow
async def looks_once() -> str:
    await receive("go")
    try:
        return await receive("stop", str, timeout=0)
    except TimeoutError:
        return "on"


async def test_a_turn_that_looks_is_written_only_together_with_what_the_look_has_found(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAILBOX_BYTES", 0)
    engine, store = await opened(work=True, workflows=[looks_once], options=WorkerOptions(cached=0))
    handle = await engine.start(looks_once)
    await handle.signal("stop", "stopped")
    await until_row(engine, handle.id, lambda row: row.seen == 1 and row.owner is None)
    gate = Gate("messages", lambda wants: not wants)  # those that wait in the store are asked for by name
    store.before = gate
    await handle.signal("go")
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    assert engine.worker is not None
    engine.worker.scheduler.drain()
    assert (await engine.row(handle.id)).events == 0
    await lose(engine, store)  # if it were written, the next worker would find a receiver that found nothing
    await opened(work=True, workflows=[looks_once])
    assert await handle.result(LIMIT) == "stopped"
    gate.open.set()


@step(retry=Retry.NONE)
async def round_of(number: int) -> int:
    return number


@workflow
async def polls(number: int) -> list[int]:
    """Ask at the beginning of each run whether it is to stop."""
    try:
        return [number, await receive("stop", int, timeout=0)]
    except TimeoutError:
        pass
    await round_of(number)
    if number == 0:
        await receive("on")
    return continue_as_new(number + 1)


@pytest.mark.parametrize("killed", [False, True])
async def test_what_came_in_an_earlier_run_is_there_for_a_look_at_the_very_beginning_of_the_next(
    opened: Open, killed: bool
) -> None:
    engine, store = await opened(work=True, workflows=[polls], options=WorkerOptions(cached=0))
    handle = await engine.start(polls, 0)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.events)
    await handle.signal("stop", 7)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.seen == 1)
    if killed:
        await lose(engine, store)
        engine, _ = await opened(work=True, workflows=[polls], options=WorkerOptions(cached=0))
    await engine.process(handle.id).signal("on")
    assert await engine.process(handle.id, list[int]).result(LIMIT) == [1, 7]


@workflow
async def falls_as_it_begins_again(number: int) -> None:
    if number == 0:
        await receive("go")
        continue_as_new(1)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(hasty())
            group.create_task(falling())
    finally:
        await tidy()


async def test_a_look_at_the_beginning_of_a_run_that_is_cut_short_is_replayed_as_it_was(opened: Open) -> None:
    ways.clear()
    engine, _ = await opened(work=True, workflows=[falls_as_it_begins_again], options=WorkerOptions(cached=0))
    handle = await engine.start(falls_as_it_begins_again, 0)
    await handle.signal("go")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.retry()
    with pytest.raises(ProcessFailed):  # and not ProcessBroken: its history fits
        await handle.result(LIMIT)
    assert ways == []
