"""SIGKILL around the commits with which a process continues as new: the next worker goes on with the right run."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.kernel.process import Status
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.tenant import tenant

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
EVERY = [(call, side) for call in (1, 2, 3, 4) for side in ("before", "after")]
POINTS = points(EVERY, (1, "after"), (2, "before"), (2, "after"), (4, "before"))
"""Of each run the first commit holds the result of its step, the second opens the next run."""


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_rule_21_a_worker_killed_while_a_process_continues_as_new_loses_no_run_and_repeats_none(
    harness: Harness, call: int, side: str
) -> None:
    kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
    child = await harness.start_worker(start="tenant", key="k", modules=["tests.kill.tenant"], kill_point=kill_point)
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    async with Engine(harness.url, work=True, workflows=[tenant]) as survivor:
        handle = await survivor.handle(tenant, "k")
        assert await handle.result(LIMIT) == 6
        [row] = await laws_hold(survivor)
        assert (row.status, row.run) == (Status.COMPLETED, 3)
        paid = {(f"pay{run}", f"{handle.id}/{run}/pay:1") for run in (1, 2, 3)}
        assert set(harness.effects()) == paid, "a key of its own in each run"
        assert sum(harness.effects().values()) <= 4, "only what was in flight ran again"
        runs = [[event.type.name for event in await survivor.process(handle.id).history(run)] for run in (1, 2)]
        assert all("STEP_COMPLETED" in run for run in runs), "old runs can be read to their end"
