"""SIGKILL while undos wait in a queue or run there: each is recorded once, and the order stays."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessFailed
from perdure.store.base import Search
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.traveller import night, voyage
from tests.runtime.conftest import until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]
KILL = 9
DEEDS = ["reserve1", "reserve2", "reserve3", "give_back3", "give_back2", "give_back1"]
EVERY = [(call, side) for call in (7, 8, 9, 10) for side in ("before", "after")]
POINTS = points(EVERY, (7, "before"), (8, "after"), (9, "before"), (10, "after"))
"""By the seventh commit all has failed; the undos follow, two commits for each: its asking and its answer."""


async def undone(engine: Engine, harness: Harness, *, again: int) -> None:
    """The voyage has been taken back, in order, and only so many deeds were done a second time."""
    async with asyncio.timeout(LIMIT):
        while not (rows := await engine.list(Search(kind="voyage"))):
            await asyncio.sleep(0.001)
    with pytest.raises(ProcessFailed, match="the last train has gone") as caught:
        await engine.process(rows[0].id).result(timeout=LIMIT)
    assert caught.value.undone == ("reserve_there:2", "night:1", "reserve_there:1")
    assert list(dict.fromkeys(what for what, _ in harness.effects())) == DEEDS
    assert len(harness.effects()) == 6, "each step and each undo has one key, whoever runs it"
    assert sum(harness.effects().values()) <= 6 + again
    await laws_hold(engine, "desk")


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_a_worker_killed_while_its_undos_wait_in_a_queue_loses_none_and_the_order_stays(
    harness: Harness, call: int, side: str
) -> None:
    async with Engine(harness.url, work=True, workflows=[night], queues=["desk"]):
        kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
        child = await harness.start_worker(
            start="voyage", key="k", modules=["tests.kill.traveller:voyage"], kill_point=kill_point
        )
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[voyage], queues=[]) as survivor:
            await undone(survivor, harness, again=1)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_the_worker_of_a_queue_killed_at_undo_2_of_3_leaves_it_to_another(harness: Harness, side: str) -> None:
    async with Engine(harness.url, work=True, workflows=[voyage, night], queues=[]) as engine:
        kill_point = {"door": "commit", "call": 2, "side": side, "signal": KILL}
        desk = await harness.start_worker(modules=["tests.kill.traveller:DESK"], kill_point=kill_point)
        await engine.start(voyage)
        assert await asyncio.wait_for(desk.wait(), LIMIT) == -KILL
        await until(lambda: len(harness.effects()) >= 5)
        async with Engine(harness.url, work=True, workflows=[], queues=["desk"]) as other:
            await undone(other, harness, again=1)
