"""Opening a file: migrations by many at once and cut off in the middle, foreign and newer files."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import InvalidUrl, StoreError, StoreTooNew, StoreTooOld
from perdure.kernel.stream import EventStream
from perdure.store.sqlite import schema
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import Trial
from tests.store.sqlite.conftest import Spawn

STARTERS = 16

OPEN = """
import asyncio, os, sys
from perdure.store.sqlite.store import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    answered = await store.now() > 0
    await store.close()
    return answered
start, go = os.pipe()
starters = []
for _ in range(int(sys.argv[2])):
    starter = os.fork()
    if starter == 0:
        os.close(go)
        os.read(start, 1)  # answers when the last one has been started
        os._exit(0 if asyncio.run(main()) else 1)
    starters.append(starter)
os.close(go)
for starter in starters:
    print(os.waitstatus_to_exitcode(os.waitpid(starter, 0)[1]))
"""
"""OS processes of their own, forked when what they import is there."""

DIE_IN_MIGRATION = """
import asyncio, os, signal, sys
from perdure.store.sqlite import schema as sqlite_schema
from perdure.store.sqlite.store import SqliteStore
whole = sqlite_schema.statements
def cut(script):
    global left
    for statement in whole(script):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        yield statement
sqlite_schema.statements = cut
for url, left in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    starter = os.fork()
    if starter == 0:
        asyncio.run(SqliteStore(url).open())
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(starter, 0)[1]))
"""


def _tables(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
        return [name for (name,) in rows if not name.startswith("sqlite_")]
    finally:
        connection.close()


def _run(file: Path, sql: str) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        connection.execute(sql)
    finally:
        connection.close()


def _pragma(file: Path, pragma: str) -> object:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        found = connection.execute(f"PRAGMA {pragma}").fetchone()
        return found[0] if found else None
    finally:
        connection.close()


def test_16_starters_at_once_migrate_once_and_all_go_on(file: Path, url: str, spawn: Spawn) -> None:
    out, _ = spawn(OPEN, url, str(STARTERS)).communicate()
    assert out == "0\n" * STARTERS
    assert _pragma(file, "user_version") == len(schema.migrations())
    assert _pragma(file, "integrity_check") == "ok"


async def test_16_stores_of_one_program_open_at_once(url: str) -> None:
    stores = [SqliteStore(url) for _ in range(16)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))


STATEMENTS = sum(len(schema.statements(migration)) for migration in schema.migrations())


async def test_a_starter_killed_in_a_migration_leaves_nothing_half_done(tmp_path: Path, spawn: Spawn) -> None:
    files = {tmp_path / f"{statement}.db": statement for statement in (0, 1, 5, 12, STATEMENTS - 1)}
    deaths = [word for file, statement in files.items() for word in (f"sqlite:///{file}", str(statement))]
    out, _ = spawn(DIE_IN_MIGRATION, *deaths).communicate()
    assert out == f"{-signal.SIGKILL}\n" * len(files)
    for file in files:
        assert _tables(file) == []
        store = SqliteStore(f"sqlite:///{file}")
        await store.open()
        await store.close()
        assert _pragma(file, "user_version") == len(schema.migrations())
        assert "process" in _tables(file)


async def test_a_migration_is_applied_once_and_what_is_stored_stays(trial: Trial, url: str) -> None:
    row = await trial.started(key="order/1")
    again = SqliteStore(url)
    await again.open()
    assert await Trial(trial.ground, again).row(row.id) == row
    await again.close()


async def test_the_file_says_whose_it_is(store: SqliteStore, file: Path) -> None:
    assert _pragma(file, "application_id") == schema.APPLICATION_ID
    assert _pragma(file, "journal_mode") == "wal"


async def test_a_newer_database_that_is_not_for_this_perdure_is_refused_and_left_alone(
    store: SqliteStore, file: Path, url: str
) -> None:
    await store.close()
    number = len(schema.migrations()) + 1
    _pragma(file, f"user_version = {number}")
    _run(file, "UPDATE schema_reader SET oldest = (SELECT user_version FROM pragma_user_version)")
    with pytest.raises(StoreTooNew, match="upgrade Perdure"):
        await SqliteStore(url).open()
    assert _pragma(file, "user_version") == number


async def test_a_newer_database_that_former_versions_may_use_is_opened_and_left_as_it_is(
    store: SqliteStore, file: Path, url: str
) -> None:
    await store.close()
    number = len(schema.migrations()) + 1
    _pragma(file, f"user_version = {number}")
    again = SqliteStore(url)
    await again.open()
    await again.close()
    assert _pragma(file, "user_version") == number


async def test_without_leave_to_migrate_an_empty_database_is_too_old(file: Path, url: str) -> None:
    with pytest.raises(StoreTooOld, match="perdure migrate"):
        await SqliteStore(url).open(migrate=False)
    assert not file.exists()
    file.touch()
    with pytest.raises(StoreTooOld, match="perdure migrate"):
        await SqliteStore(url).open(migrate=False)
    assert _tables(file) == []


async def test_without_leave_to_migrate_an_older_database_is_too_old(
    store: SqliteStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = (*schema.migrations(), "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;")
    monkeypatch.setattr(schema, "migrations", lambda: newer)
    with pytest.raises(StoreTooOld, match="perdure migrate"):
        await SqliteStore(url).open(migrate=False)


async def test_an_older_database_is_brought_up_by_the_missing_migrations_alone(
    trial: Trial, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await trial.started()
    newer = (*schema.migrations(), "CREATE TABLE later (id INTEGER PRIMARY KEY) STRICT;")
    monkeypatch.setattr(schema, "migrations", lambda: newer)
    later = SqliteStore(url)
    await later.open()
    assert await Trial(trial.ground, later).row(row.id) == row
    await later.close()
    assert "later" in _tables(file)
    assert _pragma(file, "user_version") == len(newer)


async def test_an_older_database_with_streams_gets_the_triggers_that_this_perdure_wants(
    store: SqliteStore, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.records(EventStream, [EventStream("audit", 1)])
    await store.close()
    wanted = _sql(file)
    _run(file, "DROP TRIGGER stream_keep")
    _run(file, "CREATE TRIGGER stream_keep AFTER DELETE ON event BEGIN SELECT 1; END")
    monkeypatch.setattr(schema, "migrations", lambda: (*_MIGRATIONS, "SELECT 1;", "SELECT 1;"))
    again = SqliteStore(url)
    await again.open()
    await again.close()
    assert _sql(file) == wanted
    assert _pragma(file, "user_version") == len(_MIGRATIONS) + 2


_MIGRATIONS = schema.migrations()


def _sql(file: Path) -> list[object]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name").fetchall()


async def test_a_database_of_another_program_is_refused_and_left_alone(file: Path, url: str) -> None:
    _pragma(file, "application_id = 7")
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore(url).open()
    assert (_tables(file), _pragma(file, "journal_mode")) == ([], "delete")


async def test_a_file_with_tables_of_its_own_is_refused_and_left_alone(file: Path, url: str) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE theirs (id INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore(url).open()
    assert _tables(file) == ["theirs"]


async def test_a_file_that_is_no_database_is_refused_and_left_alone(file: Path, url: str) -> None:
    file.write_bytes(b"order;cents\n" * 1000)
    with pytest.raises(StoreError, match="not a SQLite database"):
        await SqliteStore(url).open()
    assert file.read_bytes() == b"order;cents\n" * 1000


async def test_a_missing_folder_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that its folder exists"):
        await SqliteStore(f"sqlite:///{tmp_path}/none/shop.db").open()


async def test_a_folder_in_the_place_of_the_file_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="names a file"):
        await SqliteStore(f"sqlite:///{tmp_path}").open()


async def test_a_database_in_memory_is_as_migrations_make_a_file_and_has_a_line_of_its_own(
    file: Path, url: str
) -> None:
    stores = SqliteStore("sqlite://:memory:"), SqliteStore("sqlite://:memory:"), SqliteStore(url)
    found = []
    for store in stores:
        await store.open()
        found.append(await store._writer.thread.run(_made))
        await store.close()
    first, second, migrated = (made for made, _ in found)
    assert first == second == migrated
    assert len({line for _, line in found}) == 3


def _made(connection: Connection) -> tuple[list[object], str]:
    """All that a new database holds but its clock, and its line."""
    raw = connection.raw
    [[line]] = raw.execute("SELECT line FROM clock").fetchall()
    marks = [raw.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")]
    return [row for row in raw.iterdump() if not row.startswith('INSERT INTO "clock"')] + marks, line


async def test_the_file_is_its_owners_alone(file: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await store.close()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:", "sqlite:shop.db", "sqlite:/shop.db", "sqlite://shop.db", "sqlite:///", "sqlite:////", "sqlite://",
        "sqlite:///shop.db?mode=ro", "sqlite:///shop.db#x", "sqlite:///a\0b", "sqlite:///shop/", "postgresql://x/y",
        "shop.db", "", "sqlite:///%00",
    ],
)  # fmt: skip
def test_a_url_that_names_no_file_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidUrl, match=r"sqlite:///shop\.db"):
        SqliteStore(url)


async def test_a_url_may_name_a_file_with_awkward_letters(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/my%20sh%C3%B6p%3F.db")
    await store.open()
    await store.close()
    assert (tmp_path / "my shöp?.db").exists()
