"""A worker that is stopped past its lease, with a step that would act at once when it goes on: it does nothing more."""

from __future__ import annotations

import asyncio
import signal

import pytest

from perdure.engine import Engine
from tests.kill.crime import LIMIT, Scene, laws_hold, said
from tests.kill.victim import gate, poised

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]


async def test_a_step_of_a_worker_that_was_stopped_past_its_lease_does_not_act_any_more(scene: Scene) -> None:
    pace = {"lease_seconds": 1.2, "beat_seconds": 0.2}
    stopped = {"door": "beat", "call": 8, "side": "after", "signal": int(signal.SIGSTOP)}
    child = await scene.victim(start="poised", pace=pace, doom=stopped, timeout=LIMIT)
    id = await said(child, "started")
    async with Engine(scene.url, work=True, workflows=[poised]) as survivor:
        async with asyncio.timeout(LIMIT):
            while sum(scene.effects().values()) < 2:  # the survivor's attempt has begun too, and waits
                await asyncio.sleep(0.01)
        gate().touch()
        child.send_signal(signal.SIGCONT)
        await survivor.result(id, timeout=LIMIT)
        await said(child, "result")
        await laws_hold(survivor)
    acts = [line.split() for line in scene.ledger.read_text().splitlines() if line.startswith("acted")]
    assert [int(pid) for _, _, pid in acts if int(pid) == child.pid] == []
    assert len(acts) == 1
