"""SIGKILL in the middle of an operation: each process is commanded once, none is lost, and the count is right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import ProcessFailed, Search
from perdure.engine import Engine
from tests.kill import lender
from tests.kill.harness import LIMIT, Harness, laws_hold

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
MANY = 12
POINTS = [(call, side) for call in (2, 4, 6) for side in ("before", "after")]


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_a_worker_killed_in_the_middle_of_an_operation_repeats_nothing_and_loses_nobody(
    harness: Harness, tmp_path: Path, call: int, side: str
) -> None:
    down = tmp_path / "down"
    down.touch()
    async with Engine(harness.url, work=True, workflows=[lender], migrate=True) as client:
        for handle in await client.start_many(lender.loan, [(str(down),)] * MANY):
            with pytest.raises(ProcessFailed):
                await handle.result(LIMIT)
    down.unlink()
    async with Engine(harness.url) as client:
        operation = await client.operations.start("retry", "kind = loan and status = failed", watch=0)
        kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
        child = await harness.start_worker(modules=[lender.__name__], kill_point=kill_point)
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[lender]) as survivor:
            outcome = await operation.result(LIMIT)
            assert (outcome.phase, outcome.done, outcome.relapsed, outcome.left_out) == ("done", MANY, 0, {})
            rows = await survivor.store.search(Search(kind="loan"))
            for row in rows:
                await survivor.process(row.id).result(LIMIT)
            assert [view.run for view in await survivor.list(Search(kind="loan"))] == [2] * MANY, (
                "each was retried once"
            )
            await laws_hold(survivor)
