"""The grounds on which stores are tried: SQLite in a file and in memory, PostgreSQL directly, pooled, among decoys."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from perdure.testing.conformance import Ground
from perdure.testing.postgres import Server
from tests.introspection import asked_once
from tests.kept_sessions import KeptSessions
from tests.pooler import Pooler, program
from tests.store.ground_postgres import emptied
from tests.store.ground_sqlite import SqliteGround
from tests.store.postgres.ambush import ambush, databases, login


@pytest.fixture
def sqlite_file(tmp_path: Path, migrated_file: Path) -> Ground:
    """A SQLite file that is migrated, and empty."""
    return SqliteGround(Path(shutil.copy(migrated_file, tmp_path / "perdure.db")))


@pytest.fixture
def sqlite_memory() -> Ground:
    """A SQLite database in memory."""
    return SqliteGround(None)


@pytest.fixture
async def postgres(migrated: str, kept_sessions: KeptSessions) -> AsyncIterator[Ground]:
    """An empty PostgreSQL database."""
    async with emptied(migrated, kept=kept_sessions) as ground:
        yield ground


@pytest.fixture(scope="session")
def pooled_migrated(migrated: str, pooler: Pooler) -> Iterator[str]:
    """The URL of the migrated database by way of the pooler."""
    url = pooler.url(migrated)
    with asked_once(url):
        yield url


@pytest.fixture
async def pooled(migrated: str, pooled_migrated: str, kept_sessions: KeptSessions) -> AsyncIterator[Ground]:
    """The same, reached by way of a pooler that gives nobody a session of one's own."""
    async with emptied(migrated, pooled_migrated, kept_sessions) as ground:
        yield ground


@pytest.fixture(scope="session")
def ambushed(shared_server: Server) -> dict[str, str]:
    """The names of two migrated databases full of decoys, by the search path of the engine's login."""
    return databases(shared_server)


@pytest.fixture(scope="session")
def kept_among_decoys(shared_server: Server, ambushed: dict[str, str], kept_sessions: KeptSessions) -> Iterator[str]:
    """The URL of one of them, whose types are asked for once by kept sessions: all others are asked as ever."""
    url = login(shared_server, ambushed["ordinary"])
    with asked_once(kept_sessions.url(url)):
        yield url


@pytest.fixture
async def among_decoys(
    shared_server: Server, ambushed: dict[str, str], kept_sessions: KeptSessions, kept_among_decoys: str
) -> AsyncIterator[Ground]:
    """An empty PostgreSQL database in which decoys stand in the way of every name."""
    with kept_sessions.of(kept_among_decoys):
        async with ambush(shared_server, ambushed["ordinary"], kept=kept_sessions) as ground:
            yield ground


@pytest.fixture
def pooled_login(request: pytest.FixtureRequest, shared_server: Server, ambushed: dict[str, str]) -> str:
    """Where the engine connects behind a pooler; where none is installed, as it does behind one."""
    if program() is None:
        return login(shared_server, ambushed["turned"], "pooler=transaction")
    return str(request.getfixturevalue("pooler").url(login(shared_server, ambushed["turned"])))


@pytest.fixture
async def pooled_among_decoys(
    shared_server: Server, ambushed: dict[str, str], pooled_login: str, kept_sessions: KeptSessions
) -> AsyncIterator[Ground]:
    """The same behind a pooler, where the search path of the session is the login's own."""
    async with ambush(shared_server, ambushed["turned"], pooled_login, kept_sessions) as ground:
        yield ground


@pytest.fixture
def grounds(sqlite_memory: Ground, postgres: Ground) -> list[Ground]:
    """One ground of each kind of store."""
    return [sqlite_memory, postgres]
