"""Published values behind PgBouncer in transaction mode: nobody is told of them, so a follower looks by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.turns.publication import publish
from tests.runtime.conftest import LIMIT, Open, engines_on


@workflow
async def bell() -> int:
    rung = 0
    while await receive("ring", bool):
        rung += 1
        publish("rung", rung)
    return rung


@pytest.fixture
async def opened(pooled_url: str) -> AsyncIterator[Open]:
    """Opens engines behind the pooler."""
    async with engines_on(pooled_url) as open:
        yield open


async def test_a_follower_finds_each_value_by_looking(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bell])
    reader, _ = await opened()
    handle = await engine.start(bell.options(key="b", signal=("ring", True)))
    stream = reader.process(handle.id).values("rung", int)
    async with asyncio.timeout(LIMIT):
        assert await anext(stream) == 1
        await engine.process(handle.id).signal("ring", True)
        assert await anext(stream) == 2
        await engine.process(handle.id).signal("ring", False)
        assert [value async for value in stream] == []
