"""SIGKILL while a process undoes what it has done: somebody else goes on where it was, and nothing is undone twice."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.traveller import journey, party

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
RESERVED = ["reserve1", "reserve2", "reserve3"]
GIVEN_BACK = ["give_back3", "give_back2", "give_back1"]
EVERY = [(call, side) for call in (4, 5, 6, 7) for side in ("before", "after")]
POINTS = points(EVERY, (4, "before"), (5, "after"), (6, "before"), (7, "after"))
"""The fourth commit records the failure, the fifth to seventh the undos 1 to 3."""


async def killed(harness: Harness, flow: str, call: int, side: str) -> None:
    kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
    child = await harness.start_worker(start=flow, key="k", modules=["tests.kill.traveller"], kill_point=kill_point)
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL


def first_times(harness: Harness) -> list[str]:
    """The effects in the order in which each happened first."""
    return list(dict.fromkeys(what for what, _ in harness.effects()))


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_a_worker_killed_while_it_undoes_loses_nothing_and_the_order_stays(
    harness: Harness, call: int, side: str
) -> None:
    await killed(harness, "journey", call, side)
    async with Engine(harness.url, work=True, workflows=[journey]) as survivor:
        handle = await survivor.handle(journey, "k")
        if (call, side) == (7, "after"):
            assert (await handle.status()).status is Status.FAILED, "the last undo and the end share a commit"
        with pytest.raises(ProcessFailed, match="the last train has gone") as caught:
            await handle.result(LIMIT)
        assert caught.value.undone == ("reserve:3", "reserve:2", "reserve:1")
        assert first_times(harness) == RESERVED + GIVEN_BACK
        assert len(harness.effects()) == 6, "each step and each undo has one key, whoever runs it"
        assert sum(harness.effects().values()) <= 7, "only what was in flight ran again"
        await laws_hold(survivor)


async def test_undos_side_by_side_are_each_recorded_once_after_a_kill(harness: Harness) -> None:
    await killed(harness, "party", 3, "before")
    async with Engine(harness.url, work=True, workflows=[party]) as survivor:
        [row] = await survivor.store.search(Search(kind="party"))
        with pytest.raises(ProcessFailed) as caught:
            await survivor.process(row.id).result(timeout=LIMIT)
        assert sorted(caught.value.undone) == ["reserve:1", "reserve:2", "reserve:3"]
        assert sorted(what for what, _ in harness.effects()) == sorted(RESERVED + GIVEN_BACK)
        await laws_hold(survivor)


async def test_rule_23_a_process_killed_after_undo_2_of_3_and_terminated_lists_the_third(harness: Harness) -> None:
    await killed(harness, "journey", 6, "after")
    async with Engine(harness.url, migrate=True) as client:  # hosts nothing: a command needs no code
        handle = await client.handle("journey", "k")
        await handle.terminate(who="anna")
        with pytest.raises(ProcessCancelled, match="not undone: reserve:1") as caught:
            await handle.result(LIMIT)
        assert caught.value.undone == ("reserve:3", "reserve:2")
