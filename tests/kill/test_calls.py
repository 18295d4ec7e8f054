"""SIGKILL around the commit that holds an answer: the same key gets the same answer, from a step that counted once."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.errors import CallUnanswered
from perdure.kernel.event import ANSWERS
from tests.kill.harness import LIMIT, Harness, laws_hold, points, said
from tests.kill.teller import teller

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
EVERY = [("commit", call, side) for call in (1, 2) for side in ("before", "after")]
POINTS = points(EVERY, ("commit", 1, "after"), ("commit", 2, "before"), ("commit", 2, "after"))
"""The commit in which the call was received, then the one with the step's result and the answer."""


@pytest.mark.parametrize(("door", "call", "side"), POINTS)
async def test_a_worker_killed_around_the_commit_of_an_answer_leaves_one_answer_to_the_key(
    harness: Harness, door: str, call: int, side: str
) -> None:
    kill_point = {"door": door, "call": call, "side": side, "signal": KILL}
    child = await harness.start_worker(start="teller", key="k", modules=["tests.kill.teller"], kill_point=kill_point)
    id = await said(child, "started")
    async with Engine(harness.url, migrate=True) as client:
        waiting = asyncio.create_task(client.process(id).call("ask", 7, key="first"))
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[teller]) as survivor:
            async with asyncio.timeout(LIMIT):
                # Whoever waited on, whoever asks again, and whoever asks elsewhere.
                assert await waiting == [7, 1]
                assert await client.process(id).call("ask", 7, key="first") == [7, 1]
                assert await survivor.process(id).call("ask", 7, key="first") == [7, 1]
                assert await client.process(id).call("ask", 8, key="second") == [8, 2]
                with pytest.raises(CallUnanswered):
                    await client.process(id).call("ask", 0)
            assert await survivor.process(id).result(timeout=LIMIT) == 2
            events = await survivor.process(id).history()
            assert [event.name for event in events if event.type in ANSWERS] == ["ask:1", "ask:2"]
            [row] = await laws_hold(survivor)
            assert (row.inbox, row.seen) == (3, 3)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_caller_killed_as_it_asks_may_ask_again_and_is_answered_once(harness: Harness, side: str) -> None:
    kill_point = {"door": "send", "call": 1, "side": side, "signal": KILL}
    async with Engine(harness.url, work=True, workflows=[teller]) as engine:
        handle = await engine.start(teller.options(key="k"))
        child = await harness.start_worker(
            modules=["tests.kill.teller"], call=[handle.id, "ask", 7, "first"], kill_point=kill_point
        )
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        assert await handle.call("ask", 7, key="first", timeout=LIMIT) == [7, 1]
        await handle.signal("ask", 0)
        assert await handle.result(LIMIT) == 1
        [row] = await laws_hold(engine)
        assert (row.inbox, row.seen) == (2, 2)
