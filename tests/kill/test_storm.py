"""Kills at any moment and stops past the lease, the short form; ``make kill`` makes hundreds of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kill import workload
from tests.kill.storm import kills, stops

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ledger of effects lies."""
    monkeypatch.setenv(workload.LEDGER, str(tmp_path / "ledger"))
    return tmp_path


async def test_workers_killed_at_any_moment_under_load_lose_nothing(folder: Path, store_url: str) -> None:
    assert "all finished" in await kills(store_url, folder, wanted=4, seed=5, told=lambda text: None)


async def test_every_late_answer_of_a_stopped_worker_is_refused(folder: Path, store_url: str) -> None:
    assert "1 late answers" in await stops([store_url], folder, wanted=1, told=lambda text: None)
