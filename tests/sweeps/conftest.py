"""The grounds of the sweeps: each store in turn, with its time in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.store.postgres import PostgresStore
from perdure.testing.conformance import Ground
from perdure.testing.postgres import Server, at_once
from tests.store.ground_postgres import emptied
from tests.store.ground_sqlite import SqliteGround
from tests.sweeps.watch import Watch


@pytest.fixture(scope="session")
def swept_database(shared_server: Server) -> str:
    """The URL of a PostgreSQL database that is migrated already, so that each test only has to empty it."""
    url = shared_server.fresh_database()

    async def migrate() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    at_once(migrate)
    return url


@pytest.fixture(params=["sqlite", "postgres"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """An empty database of each kind in turn."""
    if request.param == "sqlite":
        yield SqliteGround(tmp_path / "perdure.db")
        return
    async with emptied(request.getfixturevalue("swept_database")) as ground:
        yield ground


@pytest.fixture
async def watch(ground: Ground) -> AsyncIterator[Watch]:
    """A watch over that database."""
    made = Watch(ground)
    await made.store.open()
    yield made
    for ward in made.wards:
        await ward.committer.close()
    await made.store.close()
