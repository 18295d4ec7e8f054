"""SIGKILL in the middle of an outage: as it begins, as it is tried, as it ends; what waits is not lost, and goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import ProcessFailed, limits
from perdure.engine import Engine
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from tests.kill import lender
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.outage_worker import OPTIONS
from tests.kill.victim import Victim

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]
KILL = 9
FIRST, MANY = 3, 6
EVERY = [(state, when) for state in ("open", "half-open", "closed") for when in ("before", "after", "2")]
POINTS = points(
    [point for point in EVERY if point != ("open", "2")],
    ("open", "after"), ("half-open", "after"), ("closed", "before"), ("closed", "2"),
)  # fmt: skip


async def loans(client: Engine) -> list[Process]:
    return await client.store.search(Search(kind="loan"))


async def until_held(client: Engine, victim: Victim) -> None:
    """Wait until it is written that loans are held, or the victim is dead."""
    async with asyncio.timeout(LIMIT):
        while victim.returncode is None and not any(view.held for view in await client.outages.list()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("state", "when"), POINTS)
async def test_a_worker_killed_in_the_middle_of_an_outage_loses_nobody_and_the_next_one_ends_it(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, when: str
) -> None:
    monkeypatch.setattr(limits, "OUTAGE_DOUBLED_SECONDS", 0.5)
    down = tmp_path / "down"
    down.touch()
    async with Engine(harness.url, migrate=True) as client:
        failing = await client.start_many(lender.loan, [(str(down),)] * FIRST)
        victim = await harness.start("tests.kill.outage_worker", harness.url, state, when)
        await until_held(client, victim)
        waiting = await client.start_many(lender.loan, [(str(down),)] * MANY)
        if state != "half-open":
            down.unlink()
        assert await asyncio.wait_for(victim.wait(), LIMIT) == -KILL
        down.unlink(missing_ok=True)
        for handle in failing:
            with pytest.raises(ProcessFailed, match="the bank does not answer"):
                await handle.result(LIMIT)
        begun = [row for row in await loans(client) if row.status is not Status.RUNNING or row.events]
        let_go = (2 if state == "half-open" else 1) + (int(when) if when.isdigit() else 0)
        assert len(begun) <= FIRST + let_go, "what was held waits, but for canaries and for those that it has let go"
        canaries = sum(row.status is Status.FAILED for row in begun) - FIRST
        async with Engine(harness.url, work=True, workflows=[lender], options=OPTIONS) as survivor:
            ends = await asyncio.gather(*(handle.result(LIMIT) for handle in waiting), return_exceptions=True)
            assert sum(isinstance(end, ProcessFailed) for end in ends) == canaries, ends
            assert sum(end is None for end in ends) == MANY - canaries
            [view] = await survivor.outages.list()
            assert not view.held and [change[1] for change in view.changes].count("closed") == 1
            await laws_hold(survivor)
