"""SIGKILL in the middle of an operation: each process is commanded once, none is lost, and the count is right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import ProcessFailed, Search
from perdure.engine import Engine
from perdure.kernel.event import EventType
from tests.kill import lender
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.operations.copies import copy

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
MANY = 12
LARGE = 3_000
EVERY = [(call, side) for call in (2, 4, 6) for side in ("before", "after")]
POINTS = points(EVERY, (2, "after"), (4, "before"), (6, "after"))
FURTHER_POINTS = points([(5, "before"), (9, "after")], (5, "before"))


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


@pytest.mark.parametrize(("call", "side"), FURTHER_POINTS)
async def test_a_worker_killed_in_the_middle_of_a_large_operation_repeats_nothing_and_loses_nobody(
    harness: Harness, tmp_path: Path, call: int, side: str
) -> None:
    down = tmp_path / "down"
    down.touch()
    async with Engine(harness.url, work=True, workflows=[lender], migrate=True) as client:
        first = await client.start(lender.loan, str(down))
        with pytest.raises(ProcessFailed):
            await first.result(LIMIT)
    down.unlink()
    where = "kind = loan and status = failed"
    async with Engine(harness.url) as client:
        await copy(client, first.id, LARGE - 1)
        operation = await client.operations.start("retry", where, watch=0)
        kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
        child = await harness.start_worker(only=[], kill_point=kill_point)
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        done = LARGE - (await client.count(where=where))["loan"]["failed"]
        assert 0 < done < LARGE, "the worker died in the middle"
        async with Engine(harness.url, work=True, workflows=[]):
            outcome = await operation.result(LIMIT)
        assert (outcome.phase, outcome.done, outcome.relapsed, outcome.left_out) == ("done", LARGE, 0, {})
        assert await client.count(where="kind = loan and status = running and run = 2") == {"loan": {"running": LARGE}}
        history = await client.process(first.id).history()
        assert [event.type for event in history].count(EventType.RUN_OPENED) == 1
