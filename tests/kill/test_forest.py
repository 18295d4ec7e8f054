"""SIGKILL around large families and around orders: nobody is lost, started twice, or left running."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessCancelled
from perdure.kernel.child import begun
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.kill.forest import GARDEN, forest, seed, walled
from tests.kill.harness import LIMIT, Harness, points
from tests.kill.kinship import families_whole
from tests.kill.workload import held
from tests.runtime.conftest import until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]
KILL = 9
SIDES = ("before", "after")
MANY = 2_000
POINTS = points([(2, "before"), (3, "after"), (5, "before")], (3, "after"), (5, "before"))


def kill_point(call: int, side: str) -> dict[str, Any]:
    return {"door": "commit", "call": call, "side": side, "signal": KILL}


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_a_parent_of_thousands_killed_half_way_has_each_child_once_and_all_answers(
    harness: Harness, call: int, side: str
) -> None:
    modules = ["tests.kill.forest:forest", "tests.kill.forest:seed"]
    child = await harness.start_worker(
        start="forest", args=[MANY], key="k", modules=modules, kill_point=kill_point(call, side)
    )
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    async with Engine(harness.url, work=True, workflows=[forest, seed]) as survivor:
        handle = await survivor.handle(forest, "k")
        assert await handle.result(LIMIT) == sum(range(MANY))
        rows = await survivor.store.search(Search(kind="seed", limit=2 * MANY))
        assert Counter(row.status for row in rows) == {Status.COMPLETED: MANY}
        row = await survivor.row(handle.id)
        history = await survivor.store.history(row.id, row.run, limit=row.events)
        started = Counter(begun(event).id_bytes for event in history if event.type is EventType.CHILD_STARTED)
        assert started == Counter(row.id for row in rows)


@pytest.mark.parametrize("side", SIDES)
async def test_a_worker_killed_while_it_ends_a_child_with_its_parent_leaves_the_order_for_the_next(
    harness: Harness, side: str
) -> None:
    async with Engine(harness.url, work=True, workflows=[walled]) as engine:
        handle = await engine.start(walled)
        # Its first commit starts the child's own child, the second gives the child back, the third ends it.
        child = await harness.start_worker(modules=["tests.kill.forest:GARDEN"], kill_point=kill_point(3, side))
        await until(lambda: len(harness.effects()) == 2)
        await handle.terminate(why="winter")
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=GARDEN) as survivor:
            for kind in ("trellis", "pear"):
                [row] = await survivor.list(Search(kind=kind))
                with pytest.raises(ProcessCancelled, match="its parent has ended"):
                    await survivor.process(row.id).result(timeout=LIMIT)
            await families_whole(survivor)
    assert not [what for what, _ in harness.effects() if what == "mark99"], "nothing of it ran any more"


async def test_rule_22_a_command_killed_when_it_has_taken_the_process_leaves_it_going_on(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=[held]) as engine:
        handle = await engine.start(held.options(key="k"), 7)
        await until(harness.effects)
        commander = await harness.start("tests.kill.commander", harness.url, "held", "k")
        assert await asyncio.wait_for(commander.wait(), LIMIT) == -KILL
        harness.ledger.with_name("gate").touch()
        assert await handle.result(LIMIT) == 14
        types = [event.type for event in await handle.history()]
        assert types.count(EventType.REVIVED) == 1
        assert len([what for what, _ in harness.effects() if what == "hold7"]) == 1, "it ran again under its key"
