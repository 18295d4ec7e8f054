"""SIGKILL between the turn that publishes and its commit, and after it: each value is there once, in its order."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.kernel.event import EventType
from perdure.store.base import Search
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.herald import herald, listener

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
START = ("start", 1, "after")
COMMITS = [("commit", call, side) for call in (1, 2, 3) for side in ("before", "after")]
POINTS = points([START, *COMMITS], START, ("commit", 2, "before"), ("commit", 2, "after"), ("commit", 3, "before"))
HOSTED = [herald, listener]


@pytest.mark.parametrize(("door", "call", "side"), POINTS)
async def test_a_worker_killed_around_the_commit_of_a_published_value_leaves_each_value_once(
    harness: Harness, door: str, call: int, side: str
) -> None:
    kill_point = {"door": door, "call": call, "side": side, "signal": KILL}
    child = await harness.start_worker(start="herald", key="k", modules=["tests.kill.herald"], kill_point=kill_point)
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    async with (
        Engine(harness.url, migrate=True) as reader,
        Engine(harness.url, work=True, workflows=HOSTED) as survivor,
    ):
        handle = await survivor.handle(herald, "k")
        async with asyncio.timeout(LIMIT):
            followed = [value async for value in reader.process(handle.id).values("stage", int)]
        assert followed == [0, 1, 2, 3]
        assert await handle.result(LIMIT) == 6
        assert await handle.value("stage") == 3
        events = await survivor.process(handle.id).history()
        assert [event.payload for event in events if event.type is EventType.PUBLISHED] == [b"0", b"1", b"2", b"3"]
        assert [event.payload for event in events if event.type is EventType.ATTRIBUTES_SET] == [
            b'{"stage":1}', b'{"stage":2}', b'{"stage":3}'
        ]  # fmt: skip
        found = await survivor.list(Search(attributes=(("stage", "3"),)))
        assert [view.id for view in found] == [handle.id]
        await laws_hold(survivor)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_accepted_is_kept_a_worker_killed_at_a_start_that_brings_a_signal_loses_both_or_none(
    harness: Harness, side: str
) -> None:
    kill_point = {"door": "start", "call": 1, "side": side, "signal": KILL}
    orders = {"start": "listener", "key": "k", "signal": ["word", 7, "first"], "modules": ["tests.kill.herald"]}
    child = await harness.start_worker(**orders, kill_point=kill_point)
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    async with Engine(harness.url, work=True, workflows=HOSTED) as survivor:
        # The client asks again: whatever became of the first start, there are one process and one signal.
        handle = await survivor.start(listener.options(key="k", signal=("word", 7, "first")))
        assert handle.created == (side == "before")
        await handle.signal("word", -1)
        assert await handle.result(LIMIT) == [7]
        [row] = await laws_hold(survivor)
        assert (row.inbox, row.seen) == (2, 2)
