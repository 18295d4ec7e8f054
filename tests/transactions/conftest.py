"""An engine on each kind of store, and a caller of each driver with a table of his own in the same database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from perdure.engine import Engine
from tests.transactions.caller import CALLERS, Caller, by_asyncpg, by_sqlite3_immediate
from tests.transactions.shop import bill, greet, told

Call = Callable[[], AbstractAsyncContextManager[Caller]]

WAYS = [(kind, way) for kind, ways in CALLERS.items() for way in ways]


EVERY_STORE = pytest.mark.parametrize(
    "way", [("postgres", by_asyncpg), ("sqlite", by_sqlite3_immediate)], indirect=True
)
"""For what depends on the store, and not on the driver."""


@pytest.fixture
def postgres_url(cleared_url: str) -> str:
    """The one database that is migrated, emptied: the tables of a caller go with the next emptying."""
    return cleared_url


@pytest.fixture(params=WAYS, ids=lambda pair: f"{pair[0]}-{pair[1].__name__.removeprefix('by_')}")
def way(request: pytest.FixtureRequest) -> tuple[str, Call]:
    """The URL of a database, and a caller there: each driver in turn."""
    kind, by = request.param
    url = str(request.getfixturevalue(f"{kind}_url"))
    return url, partial(by, url)


@pytest.fixture
async def engine(way: tuple[str, Call]) -> AsyncIterator[Engine]:
    """A worker on that database."""
    async with Engine(way[0], work=True, workflows=[bill, greet, told]) as engine:
        yield engine


@pytest.fixture
async def call(way: tuple[str, Call], engine: Engine) -> Call:
    """How to become a caller; he has a table of his own, named ``sale``."""
    async with way[1]() as caller:
        await caller.run("CREATE TABLE sale (number int PRIMARY KEY)")
        await caller.end(commit=True)
    return way[1]
