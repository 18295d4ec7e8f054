"""What every test may ask for: a fresh SQLite file, a fresh PostgreSQL database, direct or pooled, or each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.pooler import Pooler, program


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running PostgreSQL server of our own, one for the whole session."""
    made = Cluster()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="session")
def pooler(cluster: Cluster) -> Iterator[Pooler]:
    """A PgBouncer in transaction mode before that server."""
    if program() is None:
        pytest.skip("PgBouncer is not installed; on Debian and Ubuntu: apt-get install pgbouncer")
    made = Pooler(cluster)
    yield made
    made.remove()


@pytest.fixture
def postgres_url(cluster: Cluster) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    url = cluster.database()
    yield url
    cluster.drop(url)


@pytest.fixture
def pooled_url(postgres_url: str, pooler: Pooler) -> str:
    """The URL of an empty PostgreSQL database, reached by way of the pooler."""
    return pooler.url(postgres_url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path}/perdure.db"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind in turn: the test runs once for each."""
    return str(request.getfixturevalue(f"{request.param}_url"))
