"""SIGKILL between a blob and the commit that refers to it: one blob too many is left, and is removed later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.engine import Engine
from perdure.kernel.stored import Undecodable
from tests.kill import outside
from tests.kill.harness import LIMIT, Harness, laws_hold, points
from tests.kill.workload import three_steps

pytestmark = pytest.mark.kill
KILL = 9
POINTS = points([("start", 1), ("commit", 1), ("commit", 3)], ("start", 1), ("commit", 3))


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have every payload of this test and its victims sealed and put outside, here."""
    monkeypatch.setenv("PERDURE_SEAL", outside.__name__)
    monkeypatch.setenv(outside.FOLDER, str(tmp_path / "blobs"))
    monkeypatch.setattr(outside.offload, "path", tmp_path / "blobs")
    return tmp_path / "blobs"


def places(blobs: Path) -> set[Path]:
    return {path for path in blobs.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("door", "call"), POINTS)
async def test_a_worker_killed_between_blob_and_commit_loses_nothing_and_leaves_nothing_for_good(
    harness: Harness, blobs: Path, monkeypatch: pytest.MonkeyPatch, door: str, call: int
) -> None:
    kill_point = {"door": door, "call": call, "side": "before", "signal": KILL}
    child = await harness.start_worker(start="three_steps", key="k", kill_point=kill_point)
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    left = places(blobs)
    assert left
    async with Engine(harness.url, work=True, workflows=[three_steps]) as survivor:
        handle = await survivor.start(three_steps.options(key="k"))
        assert handle.created == (door == "start")
        assert await handle.result(LIMIT) == 6
        await laws_hold(survivor)
        monkeypatch.setattr(outside.offload, "grace", 0.0)
        await survivor.store.prune(10**15, 0, 100)
        assert door == "commit" or not left & places(blobs), "what was put for the process that never was"
        events = await survivor.process(handle.id).history()
        assert not any(isinstance(event.payload, Undecodable) for event in events)
        assert len(places(blobs)) == sum(event.payload is not None for event in events) + 2, "and input and result"
        assert set(harness.effects().values()) <= {1, 2}
