"""What every test may ask for: a fresh SQLite file, a fresh PostgreSQL database, direct or pooled, or each store."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("perdure.testing.conformance")  # whichever folder of tests is the first to import it

from perdure.runtime import gc_tuning  # noqa: E402
from perdure.store.postgres.store import PostgresStore  # noqa: E402
from perdure.store.sqlite.store import SqliteStore  # noqa: E402
from perdure.testing.clock import MovableMachine  # noqa: E402
from perdure.testing.postgres import Server, at_once  # noqa: E402
from tests.introspection import asked_once  # noqa: E402
from tests.kept_sessions import KeptSessions  # noqa: E402
from tests.memory import in_memory  # noqa: E402
from tests.pooler import Pooler, program  # noqa: E402
from tests.store.cleaner import Cleaner  # noqa: E402

NO_FSYNC = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB")
"""These tests kill no machine; those that crash their server bring one of their own."""
SHORT_LIVED = ("shared_preload_libraries=plpgsql", "max_wal_size=128MB", "min_wal_size=32MB")
"""A test opens some connections and makes few calls on each: none loads the language of the functions for itself."""


@pytest.fixture(scope="session", autouse=True)
def _calm_collector() -> Iterator[None]:
    """A program of tests knows a million objects: its first worker leaves them out, and not each of a thousand anew."""
    gc_tuning.calm()
    yield
    gc_tuning.restore()


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """Who starts the tests in the background may ignore SIGINT: they, and the programs that they start, would too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _no_tls() -> Iterator[None]:
    """By default drivers prepare for TLS before each connection, at some cost; no server of these tests has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGSSLMODE", "disable")
        yield


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    """A PostgreSQL server of our own, for the whole session: in memory a database is made in a tenth of the time."""
    with Server((*NO_FSYNC, *SHORT_LIVED), folder=in_memory()) as server:
        yield server


@pytest.fixture(scope="session")
def pooler(shared_server: Server) -> Iterator[Pooler]:
    """A PgBouncer in transaction mode before that server."""
    if program() is None:
        pytest.skip("PgBouncer is not installed; on Debian and Ubuntu: apt-get install pgbouncer")
    made = Pooler(shared_server)
    yield made
    made.remove()


@pytest.fixture
def new_postgres_url(shared_server: Server) -> Iterator[str]:
    """The URL of a PostgreSQL database that is made for this test alone, without a schema."""
    url = shared_server.fresh_database()
    yield url
    shared_server.execute("postgres", f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


@pytest.fixture
def postgres_url(new_postgres_url: str) -> str:
    """The URL of an empty PostgreSQL database; folders whose tests leave the schema as it is have another."""
    return new_postgres_url


@pytest.fixture(scope="session")
def kept_sessions(shared_server: Server) -> Iterator[KeptSessions]:
    """Sessions of that server that outlive the stores which use them."""
    made = KeptSessions(shared_server)
    yield made
    made.remove()


@pytest.fixture(scope="session")
def migrated(shared_server: Server, kept_sessions: KeptSessions) -> Iterator[str]:
    """The URL of a PostgreSQL database that is migrated already, so that a test only has to empty it."""
    url = shared_server.fresh_database()

    async def migrate() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    at_once(migrate)
    with asked_once(url, kept_sessions.url(url)):
        yield url


@pytest.fixture(scope="session")
def cleaner(migrated: str) -> Iterator[Cleaner]:
    """Empties that database between tests, on a connection that it keeps."""
    with Cleaner(migrated) as made:
        yield made


@pytest.fixture
def cleared_url(migrated: str, cleaner: Cleaner, kept_sessions: KeptSessions) -> Iterator[str]:
    """The URL of that database, with nothing in it: to make one anew takes longer than many a test."""
    cleaner.clear()
    with kept_sessions.of(migrated):
        yield migrated


@pytest.fixture
def pooled_url(postgres_url: str, pooler: Pooler) -> str:
    """The URL of an empty PostgreSQL database, reached by way of the pooler."""
    return pooler.url(postgres_url)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file as the first store that opens it leaves it: a test has a copy of it, and need not migrate one.

    It was made when a test's time begins: a store's clock never goes back behind what its file says.
    """
    file = tmp_path_factory.mktemp("migrated") / "perdure.db"

    async def migrate() -> None:
        store = SqliteStore(f"sqlite:///{file}", machine=MovableMachine())
        await store.open()
        await store.close()

    at_once(migrate)
    return file


@pytest.fixture
def new_sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path}/perdure.db"


@pytest.fixture
def sqlite_url(new_sqlite_url: str, migrated_file: Path) -> str:
    """The URL of a SQLite file that is migrated, and empty."""
    shutil.copyfile(migrated_file, new_sqlite_url.removeprefix("sqlite:///"))
    return new_sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind in turn: the test runs once for each."""
    return str(request.getfixturevalue(f"{request.param}_url"))
