"""The grounds of the sweeps: each store in turn, with its time in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.testing.conformance import Ground
from tests.store.ground_postgres import emptied
from tests.store.ground_sqlite import SqliteGround
from tests.sweeps.watch import Watch


@pytest.fixture(params=["sqlite", "postgres"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """An empty database of each kind in turn."""
    if request.param == "sqlite":
        yield SqliteGround(tmp_path / "perdure.db")
        return
    url, kept = request.getfixturevalue("migrated"), request.getfixturevalue("kept_sessions")
    async with emptied(url, kept=kept) as ground:
        yield ground


@pytest.fixture
async def watch(ground: Ground) -> AsyncIterator[Watch]:
    """A watch over that database."""
    made = Watch(ground)
    await made.store.open()
    yield made
    for context in made.wards:
        await context.committer.close()
    await made.store.close()
