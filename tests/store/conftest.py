"""The grounds on which stores are tried: SQLite in a file and in memory, PostgreSQL directly and behind a pooler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.testing.conformance import Ground
from tests.pooler import Pooler
from tests.store.ground_postgres import emptied
from tests.store.ground_sqlite import SqliteGround


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Ground:
    """An empty place for a SQLite file."""
    return SqliteGround(tmp_path / "perdure.db")


@pytest.fixture
def sqlite_memory() -> Ground:
    """A SQLite database in memory."""
    return SqliteGround(None)


@pytest.fixture
async def postgres(migrated: str) -> AsyncIterator[Ground]:
    """An empty PostgreSQL database."""
    async with emptied(migrated) as ground:
        yield ground


@pytest.fixture
async def pooled(migrated: str, pooler: Pooler) -> AsyncIterator[Ground]:
    """The same, reached by way of a pooler that gives nobody a session of one's own."""
    async with emptied(migrated, pooler.url(migrated)) as ground:
        yield ground


@pytest.fixture
def grounds(sqlite_memory: Ground, postgres: Ground) -> list[Ground]:
    """One ground of each kind of store."""
    return [sqlite_memory, postgres]
