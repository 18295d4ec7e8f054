"""What the tests of the PostgreSQL store may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
import pytest_asyncio

from perdure.store.postgres import PostgresStore
from perdure.testing.conformance import Trial
from perdure.testing.postgres import Server
from tests.store.postgres.ground import PostgresGround

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server of these tests' own, with fsync on, which they may restart and kill."""
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def database(server: Server) -> str:
    """The address of a database in which each test gets a schema of its own."""
    return server.fresh_database()


@pytest.fixture
def ground(database: str) -> Iterator[PostgresGround]:
    """An empty store at noon of the tests' day."""
    url = f"{database}?schema=trial_{next(_numbers)}"
    made = PostgresGround(url, url)
    yield made
    made.remove()


@pytest_asyncio.fixture
async def store(ground: PostgresGround) -> AsyncIterator[PostgresStore]:
    """The store on that ground, open."""
    opened = ground.store()
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def trial(ground: PostgresGround, store: PostgresStore) -> Trial:
    """The store on its ground, with the conformance suite's short words."""
    return Trial(ground, store)
