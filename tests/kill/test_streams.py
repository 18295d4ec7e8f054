"""SIGKILL of readers of an event stream, and of workers whose commits it gets: nothing is left out, all is in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.engine import Engine
from perdure.kernel.event import EventType
from perdure.kernel.stream import type_text
from tests.kill.harness import LIMIT, Harness, points
from tests.kill.notifier import informed

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
KILL = 9
POINTS = points([(call, side) for call in (1, 2) for side in ("before", "after")], (1, "before"), (2, "after"))


async def read_and_die(harness: Harness, handled: Path) -> None:
    """Let a reader handle a batch and be killed before its position has moved."""
    child = await harness.start("tests.kill.audience", harness.url, str(handled))
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL


async def test_a_reader_that_is_killed_before_its_position_moves_gets_the_batch_again(
    harness: Harness, tmp_path: Path
) -> None:
    handled = tmp_path / "handled"
    async with Engine(harness.url, work=True, workflows=[informed]) as engine:
        await engine.streams.put("audit")
        await (await engine.start(informed)).result(LIMIT)
        await read_and_die(harness, handled)
        before = [int(line) for line in handled.read_text().split()]
        assert (await engine.streams.state("audit")).reader, "its lease is still there"
        async with asyncio.timeout(LIMIT), engine.streams.read("audit") as batches:
            again = [record.position for record in await anext(batches)]
            await batches.handled()
        assert again == before == [1, 2, 3, 4, 5]
        assert (await engine.streams.state("audit")).behind == 0


@pytest.mark.parametrize(("call", "side"), POINTS)
async def test_a_worker_killed_around_a_commit_leaves_a_stream_that_tells_what_the_history_tells(
    harness: Harness, call: int, side: str
) -> None:
    async with Engine(harness.url, migrate=True) as client:
        await client.streams.put("audit")
        handle = await client.start(informed)
        kill_point = {"door": "commit", "call": call, "side": side, "signal": KILL}
        child = await harness.start_worker(modules=["tests.kill.notifier"], kill_point=kill_point)
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=[informed]) as survivor:
            assert await handle.result(LIMIT) == 3
            history = await survivor.process(handle.id).history()
            told = [one async for batch in survivor.streams.read("audit", wait=False) for one in batch]
            assert [one.type for one in told[:2]] == ["created", "begun"]
            assert [(one.number, one.type) for one in told[2:]] == [
                (event.number, type_text(event.type)) for event in history
            ]
            assert history[-1].type is EventType.COMPLETED
