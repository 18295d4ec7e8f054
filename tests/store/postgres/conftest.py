"""What the tests of the PostgreSQL store may ask for, beside what every store test has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from perdure.store.base import Store
from perdure.testing.conformance import Trial
from perdure.testing.postgres import Server
from tests.kept_sessions import KeptSessions
from tests.store.ground_postgres import PostgresGround, emptied
from tests.store.postgres.proxy import Proxy


@pytest.fixture
def warm() -> None:
    """For tests that look at no connections: asks that stores and the connection past them use kept sessions."""


@pytest.fixture
async def postgres(
    request: pytest.FixtureRequest, migrated: str, kept_sessions: KeptSessions
) -> AsyncIterator[PostgresGround]:
    """An empty PostgreSQL database, to which each store connects anew unless the test asks for ``warm``."""
    async with emptied(migrated, kept=kept_sessions if "warm" in request.fixturenames else None) as ground:
        yield ground


@pytest.fixture
async def store(postgres: PostgresGround) -> AsyncIterator[Store]:
    """A store on an empty database, open."""
    opened = postgres.store()
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def trial(postgres: PostgresGround, store: Store) -> Trial:
    """The store on its ground, with the conformance suite's short words."""
    return Trial(postgres, store)


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    """A PostgreSQL server, fsync on, that these tests may restart and kill."""
    with Server() as server:
        yield server


@pytest.fixture
async def proxy(postgres: PostgresGround) -> AsyncIterator[Proxy]:
    """A line to the server that a test can cut or make silent."""
    async with Proxy(postgres.url) as line:
        yield line
