"""SIGKILL of workers in the middle of steps that run at most once: nobody runs them again unless a person says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessFailed
from perdure.kernel.event import EventType
from tests.kill.banker import CLERKS, FLOWS, quick_wages, wages, wages_there
from tests.kill.harness import LIMIT, Harness
from tests.kill.test_children import KILL, kill_point
from tests.kill.workload import gate
from tests.runtime.conftest import until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]
HOSTS = ["tests.kill.banker:FLOWS"]


async def test_after_a_kill_in_the_middle_it_fails_and_a_person_decides(harness: Harness) -> None:
    child = await harness.start_worker(start="wages", args=["anna"], modules=HOSTS, key="k")
    await until(harness.effects)
    child.send_signal(KILL)
    await child.wait()
    gate().touch()
    async with Engine(harness.url, work=True, workflows=FLOWS) as survivor:
        handle = await survivor.handle(wages, "k")
        with pytest.raises(ProcessFailed, match="not known whether it was done"):
            await handle.result(LIMIT)
        key = ("wire-anna", f"{handle.id}/1/wire:1")
        assert harness.effects() == {key: 1}
        await handle.retry(who="anna", why="the bank knows of no transfer")
        assert await handle.result(LIMIT) == "anna wired"
        assert harness.effects() == {key: 2}


@pytest.mark.parametrize(
    ("call", "side", "effects", "known"),
    [(1, "before", 1, True), (1, "after", 0, False), (2, "before", 1, False), (2, "after", 1, True)],
)
async def test_a_kill_at_a_commit_of_it_repeats_nothing(
    harness: Harness, call: int, side: str, effects: int, known: bool
) -> None:
    """The first commit writes that it begins, the second its result; only what was not written may begin elsewhere."""
    child = await harness.start_worker(
        start="quick_wages", args=["anna"], modules=HOSTS, key="k", kill_point=kill_point(call, side)
    )
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    async with Engine(harness.url, work=True, workflows=FLOWS) as survivor:
        handle = await survivor.handle(quick_wages, "k")
        answer: Any = await asyncio.gather(handle.result(LIMIT), return_exceptions=True)
        assert answer == ["anna wired"] if known else "not known" in str(answer[0])
        assert harness.effects().total() == effects


async def test_a_task_whose_worker_is_killed_in_the_middle_is_not_run_again(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=CLERKS, queues=[]) as engine:
        handle = await engine.start(wages_there, "anna")
        child = await harness.start_worker(modules=["tests.kill.banker:BANK"])
        await until(harness.effects)
        child.send_signal(KILL)
        await child.wait()
        gate().touch()
        async with Engine(harness.url, work=True, workflows=[], queues=["bank"]):
            with pytest.raises(ProcessFailed, match="not known whether it was done"):
                await handle.result(LIMIT)
        assert harness.effects().total() == 1
        failed = [event for event in await handle.history() if event.type is EventType.STEP_FAILED]
        assert len(failed) == 1
