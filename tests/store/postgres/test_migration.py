"""Migrations: numbered, a transaction each or one for a new schema, a lock; many openers and a kill in the middle."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from importlib.resources import files

import asyncpg
import pytest

from perdure.clock import Computer
from perdure.errors import StoreError, StoreTooNew, StoreTooOld
from perdure.kernel.commit import Start
from perdure.kernel.process import Process
from perdure.kernel.worker import WorkerRow
from perdure.store import migrate
from perdure.store.base import Search
from perdure.store.migrate import Migration, pending, steps
from perdure.store.notifications import Notification
from perdure.store.postgres import schema
from perdure.store.postgres.schema import functions, named, queries, script
from perdure.store.postgres.store import PostgresStore

ALL = [step.number for step in steps("postgres")]
FROM_THE_FUTURE = "INSERT INTO perdure.migration (number, name) VALUES ($1, 'from the future')"
APPLIED = "SELECT array_agg(number ORDER BY number) FROM perdure.migration"
MIGRATING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'perdure migration' AND wait_event_type = 'Lock'"

NOTE_THE_LIMIT = """
    CREATE TABLE public.noted (value text);
    CREATE FUNCTION public.note() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.noted VALUES (current_setting('idle_in_transaction_session_timeout'));
    END $$;
    CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION public.note()
"""


@pytest.fixture
def url(postgres_url: str) -> str:
    """An empty database, without a schema."""
    return postgres_url


@pytest.fixture
async def outside(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection of nobody's to that database."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


async def opened(url: str, *, migrate: bool = True) -> PostgresStore:
    """A store, opened and closed again."""
    store = PostgresStore(url)
    await store.open(migrate=migrate)
    await store.close()
    return store


def test_the_steps_are_numbered_without_gaps_and_say_what_they_do() -> None:
    assert list(range(1, len(ALL) + 1)) == ALL
    assert all(step.name and step.sql.strip() for step in steps("postgres"))


async def test_sixteen_openers_at_once_apply_each_step_once(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    await asyncio.gather(*(opened(url) for _ in range(16)))
    assert await outside.fetchval(APPLIED) == ALL
    # In one transaction: a client that opens it meanwhile finds no schema, or the whole of it.
    assert await outside.fetchval("SELECT count(DISTINCT xmin::text) FROM perdure.migration") == 1


async def test_an_opener_killed_in_the_middle_leaves_whole_steps_and_the_next_goes_on(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    sql = queries("perdure")
    await outside.execute(sql["create_schema"])
    first = steps("postgres")[0]
    await outside.execute(script(first, "perdure"))
    await outside.execute(sql["record_migration"], first.number, first.name)
    gate = outside.transaction()
    await gate.start()
    await outside.execute("LOCK TABLE perdure.process")  # the step with the views waits here, in its transaction
    opening = asyncio.create_task(opened(url))
    other = await asyncpg.connect(url)
    while not (pids := await other.fetch(MIGRATING)):
        pass
    reached = await other.fetchval(APPLIED)
    for row in pids:
        await other.execute("SELECT pg_terminate_backend($1)", row["pid"])
    with pytest.raises(StoreError):
        await opening
    assert await other.fetchval(APPLIED) == reached
    assert 1 <= len(reached) < len(ALL)
    await gate.rollback()
    await opened(url)
    assert await other.fetchval(APPLIED) == ALL
    await other.close()


async def test_a_migrating_worker_that_hangs_does_not_keep_the_lock_for_ever(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    await outside.execute(NOTE_THE_LIMIT)
    await opened(url)
    assert [row[0] for row in await outside.fetch("SELECT DISTINCT value FROM public.noted")] == ["1min"]


async def test_a_newer_database_that_is_not_for_this_perdure_is_refused(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    await opened(url)
    await outside.execute(FROM_THE_FUTURE, len(ALL) + 1)
    await outside.execute("UPDATE perdure.schema_reader SET oldest = $1", len(ALL) + 1)
    for may in (True, False):
        with pytest.raises(StoreTooNew, match="upgrade"):
            await opened(url, migrate=may)


async def test_a_newer_database_that_former_versions_may_use_is_opened_and_left_as_it_is(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    await opened(url)
    await outside.execute(FROM_THE_FUTURE, len(ALL) + 1)
    await outside.execute(
        "CREATE OR REPLACE FUNCTION perdure.micros(timestamptz) RETURNS bigint LANGUAGE sql AS 'SELECT 7'"
    )
    for may in (True, False):
        await opened(url, migrate=may)
    assert await outside.fetchval(APPLIED) == [*ALL, len(ALL) + 1]
    assert await outside.fetchval("SELECT perdure.micros('1970-01-02Z')") == 7  # no older function takes its place


async def test_a_step_that_waits_for_a_table_lets_others_pass_and_is_tried_again(
    url: str, outside: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(url)
    known = steps("postgres")
    late = Migration(len(known) + 1, "a new column", "ALTER TABLE perdure.process ADD COLUMN tomorrow int")
    monkeypatch.setattr(schema, "steps", lambda database: (*known, late))
    monkeypatch.setattr(migrate, "steps", lambda database: (*known, late))
    monkeypatch.setattr(schema, "LOCK_SECONDS", 0.0)
    gate = outside.transaction()
    await gate.start()
    await outside.execute("LOCK TABLE perdure.process IN ROW EXCLUSIVE MODE")  # a long transaction of somebody's
    opening = asyncio.create_task(opened(url))
    other = await asyncpg.connect(url)
    try:
        while not await other.fetch(MIGRATING):
            pass
        await other.execute("SELECT count(*) FROM perdure.process")  # behind a step that waits for ever it would too
        assert not opening.done()
    finally:
        await gate.rollback()
    await opening
    assert await other.fetchval(APPLIED) == [*ALL, late.number]
    await other.close()


async def test_a_database_without_the_schema_is_too_old_unless_it_may_be_migrated(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    with pytest.raises(StoreTooOld, match="perdure migrate"):
        await opened(url, migrate=False)
    assert not await outside.fetchval("SELECT to_regnamespace('perdure') IS NOT NULL")
    await opened(url)
    await opened(url, migrate=False)


async def test_a_user_who_may_not_create_anything_can_open_a_finished_schema(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    await opened(url)
    await outside.execute(
        "DROP ROLE IF EXISTS humble; CREATE ROLE humble LOGIN; GRANT USAGE ON SCHEMA perdure TO humble;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO humble;"
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA perdure TO humble"
    )
    store = PostgresStore(url.replace("perdure@", "humble@", 1).replace("//perdure:", "//humble:", 1))
    try:
        await store.open()
        await store.enlist(WorkerRow(Computer().new_id(), "humble"), 1_000_000)
        assert await store.workers()
    finally:
        await store.close()
        await outside.execute("DROP OWNED BY humble; DROP ROLE humble")


async def test_two_schemas_in_one_database_do_not_see_each_other(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    one, two = PostgresStore(f"{url}?schema=one"), PostgresStore(f"{url}?schema=two")
    heard: list[Notification] = []
    for store in (one, two):
        await store.open()
    two.watch(heard.append)
    process = Process(Computer().new_id(), "order", None, b"[]")
    await one.start([Start(process)])
    assert [row.id for row in await one.search(Search())] == [process.id]
    assert await two.search(Search()) == []
    schemas = await outside.fetch("SELECT nspname FROM pg_namespace WHERE nspname IN ('one', 'two', 'perdure')")
    assert sorted(row[0] for row in schemas) == ["one", "two"]
    for store in (one, two):
        await store.close()
    assert heard == []


def test_a_step_that_is_not_there_yet_is_pending_and_none_is_when_all_are() -> None:
    assert [step.number for step in pending("postgres", 1, migrate=True)] == ALL[1:]
    assert pending("postgres", len(ALL), migrate=False) == ()


def test_every_function_file_is_installed() -> None:
    folder = files("perdure.store").joinpath("sql", "postgres", "functions")
    texts = [named(file.read_text(), "perdure") for file in folder.iterdir() if file.name.endswith(".sql")]
    assert [text for text in texts if text not in functions("perdure")] == []


def test_no_function_is_installed_twice() -> None:
    made = re.findall(r'^CREATE OR REPLACE (?:FUNCTION|VIEW) "perdure"\.(\w+)', functions("perdure"), re.MULTILINE)
    assert len(made) > 70
    assert sorted(set(made)) == sorted(made)


async def test_a_database_that_needs_only_the_last_step_gets_all_functions_as_they_are_now(
    url: str, outside: asyncpg.Connection[asyncpg.Record]
) -> None:
    sql = queries("perdure")
    await outside.execute(sql["create_schema"])
    for step in steps("postgres")[:-1]:
        await outside.execute(script(step, "perdure"))
        await outside.execute(sql["record_migration"], step.number, step.name)
    await outside.execute("CREATE FUNCTION perdure.micros(timestamptz) RETURNS bigint LANGUAGE sql AS 'SELECT 1'")
    await opened(url)
    assert await outside.fetchval("SELECT perdure.micros('1970-01-02Z')") == 24 * 3600 * 1_000_000
