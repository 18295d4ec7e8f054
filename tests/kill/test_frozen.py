"""A worker that is stopped past its lease, with a step that would act at once when it goes on: it does nothing more."""

from __future__ import annotations

import asyncio
import signal

import pytest

from perdure.engine import Engine
from tests.kill.harness import LIMIT, Harness, laws_hold, said
from tests.kill.workload import gate, poised

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


async def test_a_step_of_a_worker_that_was_stopped_past_its_lease_does_not_act_any_more(harness: Harness) -> None:
    options = {"lease_seconds": 1.2, "beat_seconds": 0.2}
    stopped = {"door": "beat", "call": 8, "side": "after", "signal": int(signal.SIGSTOP)}
    child = await harness.start_worker(start="poised", options=options, kill_point=stopped, timeout=LIMIT)
    id = await said(child, "started")
    async with Engine(harness.url, work=True, workflows=[poised]) as survivor:
        async with asyncio.timeout(LIMIT):
            while sum(harness.effects().values()) < 2:  # the survivor's attempt has begun too, and waits
                await asyncio.sleep(0.01)
        gate().touch()
        child.send_signal(signal.SIGCONT)
        await survivor.process(id).result(timeout=LIMIT)
        await said(child, "result")
        await laws_hold(survivor)
    acts = [line.split() for line in harness.ledger.read_text().splitlines() if line.startswith("acted")]
    assert [int(pid) for _, _, pid in acts if int(pid) == child.pid] == []
    assert len(acts) == 1
