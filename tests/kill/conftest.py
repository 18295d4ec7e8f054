"""A scene for every kill: one database, one ledger of effects, also for steps that run in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import limits
from tests.kill import victim
from tests.kill.crime import Scene


@pytest.fixture
def postgres_url(cleared_url: str) -> str:
    """The one database that is migrated, emptied: what is killed here is never a migration."""
    return cleared_url


@pytest.fixture
async def scene(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A scene on each store in turn; victims that still run are killed at its end."""
    scene = Scene(store_url, tmp_path)
    monkeypatch.setenv(victim.LEDGER, str(scene.ledger))
    yield scene
    await scene.end()


@pytest.fixture
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have survivors look for dead workers as soon as they are there."""
    monkeypatch.setattr(limits, "PROBE_GRACE_SECONDS", 0.0)
