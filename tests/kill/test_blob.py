"""SIGKILL between a blob and the commit that refers to it: one blob too many is left, and is removed later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.engine import Engine
from perdure.kernel.stored import Unopened
from tests.kill import outside
from tests.kill.crime import LIMIT, Scene, laws_hold
from tests.kill.victim import three_steps

pytestmark = pytest.mark.kill
KILL = 9


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have every payload of this test and its victims sealed and put outside, here."""
    monkeypatch.setenv("PERDURE_SEAL", outside.__name__)
    monkeypatch.setenv(outside.FOLDER, str(tmp_path / "blobs"))
    monkeypatch.setattr(outside.offload, "path", tmp_path / "blobs")
    return tmp_path / "blobs"


def places(blobs: Path) -> set[Path]:
    return {path for path in blobs.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("door", "call"), [("start", 1), ("commit", 1), ("commit", 3)])
async def test_a_worker_killed_between_blob_and_commit_loses_nothing_and_leaves_nothing_for_good(
    scene: Scene, blobs: Path, monkeypatch: pytest.MonkeyPatch, door: str, call: int
) -> None:
    doom = {"door": door, "call": call, "side": "before", "signal": KILL}
    child = await scene.victim(start="three_steps", key="k", doom=doom)
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    left = places(blobs)
    assert left
    async with Engine(scene.url, work=True, workflows=[three_steps]) as survivor:
        handle = await survivor.start(three_steps.options(key="k"))
        assert handle.created == (door == "start")
        assert await handle.result(LIMIT) == 6
        await laws_hold(survivor)
        monkeypatch.setattr(outside.offload, "grace", 0.0)
        await survivor.store.prune(10**15, 0, 100)
        assert door == "commit" or not left & places(blobs), "what was put for the process that never was"
        events = await survivor.history(handle.id)
        assert not any(isinstance(event.payload, Unopened) for event in events)
        assert len(places(blobs)) == sum(event.payload is not None for event in events) + 2, "and input and result"
        assert set(scene.effects().values()) <= {1, 2}
