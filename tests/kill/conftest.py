"""A scene for every kill: one database, one ledger of effects, also for steps that run in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import limits
from tests.kill import workload
from tests.kill.harness import Harness


@pytest.fixture
def postgres_url(cleared_url: str) -> str:
    """The one database that is migrated, emptied: what is killed here is never a migration."""
    return cleared_url


@pytest.fixture
async def harness(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    """A scene on each store in turn; victims that still run are killed at its end."""
    harness = Harness(store_url, tmp_path)
    monkeypatch.setenv(workload.LEDGER, str(harness.ledger))
    yield harness
    await harness.end()


@pytest.fixture
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have survivors look for dead workers as soon as they are there."""
    monkeypatch.setattr(limits, "PROBE_GRACE_SECONDS", 0.0)
