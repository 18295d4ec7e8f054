"""Small things that were promised or looked for: time without an end, engines that are closed, promises not awaited."""

from __future__ import annotations

import asyncio
import enum
import math
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.errors import InvalidInput, ProcessFailed
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from perdure.turns.mailbox import Call
from perdure.turns.publication import publish
from tests.runtime.conftest import LIMIT, Open, until_row


@workflow
async def for_ever(how: str) -> str:
    if how == "sleep":
        await asyncio.sleep(math.inf)
    elif how == "receive":
        return str(await receive("go", timeout=math.inf))
    elif how == "timeout":
        async with asyncio.timeout(math.inf):
            return str(await receive("go"))
    elif how == "nan":
        await asyncio.sleep(math.nan)
    return "awake"


async def test_what_has_no_end_in_sight_waits_for_ever_and_nan_is_refused(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[for_ever])
    asleep = await engine.start(for_ever, "sleep")
    waiting = [await engine.start(for_ever, how) for how in ("receive", "timeout")]
    row = await until_row(engine, asleep.id, lambda row: row.owner is None and row.opened_at)
    assert row.status == "running"
    for handle in waiting:
        await until_row(engine, handle.id, lambda row: row.owner is None and row.opened_at)
        await handle.signal("go", "on")
        assert await handle.result(LIMIT) == "on"
    with pytest.raises(ProcessFailed, match="NaN"):
        await (await engine.start(for_ever, "nan")).result(LIMIT)


async def test_an_engine_that_is_closed_runs_no_longer(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[for_ever])
    running = asyncio.create_task(engine.run())
    await asyncio.sleep(0)
    await engine.close(0)
    await asyncio.wait_for(running, LIMIT)


async def test_a_search_takes_ids_as_the_texts_that_views_show(opened: Open) -> None:
    engine, _ = await opened(workflows=[for_ever])
    one, two = await engine.start(for_ever, "a"), await engine.start(for_ever, "b")
    texts: Any = (one.id, two.id)
    assert {view.id for view in await engine.list(Search(ids=texts))} == {one.id, two.id}
    later: Any = max(texts)
    assert [view.id for view in await engine.list(Search(before_id=later))] == [min(texts)]


async def test_a_period_without_a_rate_is_refused(opened: Open) -> None:
    engine, _ = await opened(workflows=[for_ever])
    with pytest.raises(InvalidInput, match="there is no rate="):
        await engine.queues.limit("bank", concurrency=2, per=5.0)
    assert (await engine.queues.limit("bank", rate=2, per=5.0)).per == 5.0


@step(retry=Retry.NONE)
async def quote(n: int) -> int:
    return n


@workflow
async def forgetful(where: str) -> None:
    if where == "publish":
        publish("price", quote(1))
    elif where == "state":
        set_state({"price": quote(1)})
    else:
        asked = await receive("price", Call[int])
        asked.answer(quote(asked.value))


@pytest.mark.parametrize("where", ["publish", "state", "answer"])
async def test_a_promise_where_a_value_belongs_is_told_as_not_awaited(opened: Open, where: str) -> None:
    engine, _ = await opened(work=True, workflows=[forgetful])
    handle = await engine.start(forgetful, where)
    if where == "answer":
        asking = asyncio.create_task(engine.process(handle.id).call("price", 1, timeout=LIMIT))
    with pytest.raises(ProcessFailed, match="not awaited: write `await`"):
        await handle.result(LIMIT)
    if where == "answer":
        await asyncio.wait([asking])
        assert asking.exception() is not None


class Mixed(enum.Enum):
    NUMBER = 1
    TEXT = "b"


@workflow
async def receives_an_enum_of_several_types() -> str:
    return str(await receive("choice", Mixed))


async def test_an_enum_of_several_types_is_refused_at_receive_before_any_signal_comes(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[receives_an_enum_of_several_types])
    handle = await engine.start(receives_an_enum_of_several_types)
    with pytest.raises(ProcessFailed, match=r"the type given to receive cannot be read from JSON.*only texts, or only"):
        await handle.result(LIMIT)
