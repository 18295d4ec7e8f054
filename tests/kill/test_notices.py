"""SIGKILL around the commits of a process with a reply address: its beginning and its end are told once, in order."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Notice, receive, workflow
from perdure.engine import Engine
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.notifier import informed

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
EVERY = [(call, side) for call in (1, 2) for side in ("before", "after")]
POINTS = points(EVERY, (1, "before"), (2, "before"), (2, "after"))


@workflow
async def informant() -> list[tuple[str, int | None]]:
    """Give all that is told until the end of a process, and until nothing more comes."""
    told: list[tuple[str, int | None]] = []
    while not told or told[-1][0] != "completed":
        notice = await receive("notice", Notice)
        told.append((notice.status, notice.result))
    await receive("end")
    while True:
        try:
            notice = await receive("notice", Notice, timeout=0)
        except TimeoutError:
            return told
        told.append((notice.status, notice.result))


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_a_worker_killed_around_the_commit_that_ends_a_process_tells_it_once(
    harness: Harness, call: int, side: str
) -> None:
    async with Engine(harness.url, migrate=True) as client:
        receiver = await client.start(informant)
        handle = await client.start(informed.options(reply_to=receiver))
        kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
        child = await harness.start_worker(modules=["tests.kill.notifier"], kill_point=kill_point)
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[informed, informant]) as survivor:
            assert await handle.result(LIMIT) == 3
            await receiver.signal("end")
            assert await receiver.result(LIMIT) == [("received", None), ("completed", 3)]
            await laws_hold(survivor)
