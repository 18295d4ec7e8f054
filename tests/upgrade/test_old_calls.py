"""All that a worker of a former release asks of its database it may ask of today's; the answers have the same shape."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import pytest
from msgspec import Struct

from perdure.clock import Computer
from perdure.store.query import repeated
from perdure.store.url import store_for
from tests.input.door import execute
from tests.upgrade.release import RELEASES, make, queries

pytestmark = pytest.mark.parametrize("release", RELEASES)

FUNCTIONS = """
    SELECT p.proname || '(' || pg_get_function_arguments(p.oid) || ')', pg_get_function_result(p.oid)
    FROM pg_proc p WHERE p.pronamespace = 'perdure'::regnamespace
"""
ROW_TYPES = """
    SELECT c.relname, array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum)::text
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('c', 'v') GROUP BY c.relname
"""
COLUMNS = """
    SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r'
"""
MUST_BE_GIVEN = """
    SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
"""
LABELS = """
    SELECT t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)::text[]
    FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = 'perdure'::regnamespace GROUP BY 1
"""


async def upgraded(url: str) -> None:
    """Migrate the database to today's schema."""
    store = store_for(url, Computer())
    await store.open(migrate=True)
    await store.close()


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


async def catalog(connection: asyncpg.Connection[asyncpg.Record], query: str) -> dict[str, Any]:
    """What the system's catalog says, by name."""
    return {row[0]: row[1] for row in await connection.fetch(query)}


async def asked(connection: asyncpg.Connection[asyncpg.Record], release: str) -> dict[str, tuple[Any, Any]]:
    """Each query of the release with the types of its parameters and the columns of its answer."""
    shapes = {}
    for name, text in queries(release, "postgres").items():
        if ";" in text:
            continue  # it makes the schema itself, which is there already
        try:
            statement = await connection.prepare(text)
        except asyncpg.PostgresError as error:
            raise AssertionError(f"{name}: {error}") from error
        columns = [(one.name, one.type.name) for one in statement.get_attributes()]
        shapes[name] = ([one.name for one in statement.get_parameters()], columns)
    return shapes


class Face(Struct):
    """What a schema shows to workers: functions, row types, columns, labels, what must be given, and the queries."""

    named: list[dict[str, Any]]
    labels: dict[str, list[str]]
    must_be_given: set[str]
    shapes: dict[str, tuple[Any, Any]]

    @classmethod
    async def of(cls, url: str, release: str) -> Face:
        """The schema at that URL, as a worker of the release sees it."""
        connection = await asyncpg.connect(url)
        try:
            named = [await catalog(connection, query) for query in (FUNCTIONS, ROW_TYPES, COLUMNS)]
            given = {row[0] for row in await connection.fetch(MUST_BE_GIVEN)}
            return cls(named, await catalog(connection, LABELS), given, await asked(connection, release))
        finally:
            await connection.close()


@pytest.mark.parametrize("made", ["upgraded", "made anew"])
async def test_an_old_worker_finds_every_function_with_the_parameters_and_columns_that_it_knows(
    release: str, made: str, postgres_url: str
) -> None:
    await make(release, postgres_url, rows=False)
    was = await Face.of(postgres_url, release)
    if made == "made anew":
        await execute(postgres_url, "DROP SCHEMA perdure CASCADE")
    await upgraded(postgres_url)
    now = await Face.of(postgres_url, release)
    for known, there in zip(was.named, now.named, strict=True):
        assert {name: there.get(name) for name in known} == known
        assert len(known) > 10
    assert {name: now.labels[name][: len(known)] for name, known in was.labels.items()} == was.labels
    tables = {name.partition(".")[0] for name in was.named[2]}
    assert [one for one in now.must_be_given - was.must_be_given if one.partition(".")[0] in tables] == []
    assert now.shapes == was.shapes


# -- SQLite -----------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class Zeros(dict[str, int]):
    """Every parameter is 0."""

    def __missing__(self, name: str) -> int:
        return 0


def plans(path: str, release: str) -> Iterator[tuple[str, int]]:
    """Each statement of the release, compiled, with the number of columns of its answer."""
    known = queries(release, "sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for name, text in known.items():
            if name.startswith("create_"):
                file.execute(text)
        for name, text in known.items():
            if name.startswith("create_"):
                continue
            text = _COMMENT.sub("", repeated(text, 2).replace("/* conditions */", "1 = 1"))
            given: Any = Zeros() if re.search(r":[a-z]", text) else [0] * text.count("?")
            try:
                file.execute(f"EXPLAIN {text}", given)
                columns = 0
                if text.lstrip().startswith(("SELECT", "WITH")) and "UPDATE" not in text and "DELETE" not in text:
                    columns = len(file.execute(text, given).description)
            except sqlite3.Error as error:
                raise AssertionError(f"{name}: {error}") from error
            yield name, columns


def table_columns(path: str) -> dict[str, tuple[Any, ...]]:
    """Of each table and column: its type, whether it must be given, and whether it is of the key."""
    with closing(sqlite3.connect(path)) as file:
        tables = file.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
        rows = {table: file.execute(f"PRAGMA table_info({table})").fetchall() for (table,) in tables}
    return {f"{table}.{row[1]}": (row[2], row[3] and row[4] is None, row[5]) for table, row in _flat(rows)}


def _flat(rows: dict[str, list[Any]]) -> Iterator[tuple[str, Any]]:
    for table, columns in rows.items():
        for column in columns:
            yield table, column


async def test_every_statement_of_an_old_worker_still_fits_the_newest_sqlite_schema(
    release: str, sqlite_url: str
) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    await make(release, sqlite_url, rows=False)
    shapes, was = dict(plans(path, release)), table_columns(path)
    await upgraded(sqlite_url)
    assert dict(plans(path, release)) == shapes
    assert sum(columns > 0 for columns in shapes.values()) > 30
    now = table_columns(path)
    assert {name: now.get(name) for name in was} == was
    tables = {name.partition(".")[0] for name in was}
    added = [name for name in now if name not in was and name.partition(".")[0] in tables]
    assert [name for name in added if now[name][1]] == []
