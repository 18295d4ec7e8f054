"""Overload: what an engine does when the store takes less than is asked of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.workflow import receive, workflow
from perdure.errors import Overloaded, StoreUnavailable
from perdure.testing.faults import Outage
from tests.runtime.conftest import Open


@workflow
async def swamped(text: str) -> str:
    return text + await receive("more", str)


async def _until_tried(outage: Outage) -> None:
    async with asyncio.timeout(20):
        while not outage.failed:
            await asyncio.sleep(0.001)


async def test_what_an_engine_cannot_keep_in_memory_is_refused_at_once_and_the_rest_is_kept(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITING_RECORDS", 3)
    engine, store = await opened(work=False, workflows=[swamped])
    known = await engine.start(swamped, "0")
    outage = Outage("start", "send").upon(store)
    outage.away = True
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(engine.start(swamped, text)) for text in "123"]
    await _until_tried(outage)
    # One batch is on its way again and again; behind it so much may wait, and no more.
    waiting += [asyncio.create_task(engine.start(swamped, text)) for text in "456"]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="try again later"):
        await engine.start(swamped, "7")
    with pytest.raises(StoreUnavailable, match="slow down"):
        await known.signal("more", "!")
    assert engine.metrics()["overloaded"] == 2
    outage.away = False
    await asyncio.gather(*waiting)
    await known.signal("more", "!")
    assert await engine.count() == {"swamped": {"running": 7}}


async def test_bytes_that_wait_count_too_and_count_no_more_when_they_are_written(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITING_BYTES", 1_000)
    engine, store = await opened(work=False, workflows=[swamped])
    for _ in range(3):
        await engine.start(swamped, "x" * 2_000)  # one alone goes its way, however large
    outage = Outage("start").upon(store)
    outage.away = True
    waiting = [asyncio.create_task(engine.start(swamped, "x" * 600))]
    await _until_tried(outage)
    waiting.append(asyncio.create_task(engine.start(swamped, "x" * 600)))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await engine.start(swamped, "x" * 600)
    outage.away = False
    await asyncio.gather(*waiting)
    assert await engine.count() == {"swamped": {"running": 5}}


async def test_more_processes_may_be_started_at_once_than_may_wait(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITING_RECORDS", 10)
    engine, _ = await opened(work=False, workflows=[swamped])
    handles = await engine.start_many(swamped, [(f"{n}",) for n in range(35)])
    assert len({handle.id for handle in handles}) == 35
    assert await engine.count() == {"swamped": {"running": 35}}
