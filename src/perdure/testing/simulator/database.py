"""The database of a history: in memory, with its schema, empty; the next history in this OS process gets the same one.

To make one, and to have SQLite understand every statement anew, takes a quarter of what a history takes. An emptied
one is as good: its rows lie in the order of their keys, so nothing of what was there before can be seen.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import cache

from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.schema import APPLICATION_ID, migrations, statements

_idle: list[Connection] = []
_CREATED = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_BEGUN = (
    "UPDATE clock SET at = 0, due_hints = 0, done_hints = 0, line = 'first', line_at = 0, ticks = 0, lead = 0, "
    "lead_since = NULL, slewed_at = 0, mending = 0, version = 0, changed_at = 0, who = '', why = '', origin = ''"
)
_NOTED = (("process", "id"), ("event", "process"), ("message", "process"))
_ALTERED = {
    ("event", "update"): "1",
    # Of a process that goes on, only what was before the last run may be pruned.
    ("event", "delete"): "coalesce((SELECT old.run + 1 >= run FROM main.process WHERE id = old.process), 1)",
}
_NOTES = (
    "CREATE TEMP TABLE touched (process BLOB, altered INTEGER)",
    *(
        f"CREATE TEMP TRIGGER touched_{table}_{verb} AFTER {verb.upper()} ON main.{table} "  # noqa: S608
        f"BEGIN INSERT INTO touched VALUES ({'old' if verb == 'delete' else 'new'}.{column}, "
        f"{_ALTERED.get((table, verb), '0')}); END"
        for table, column in _NOTED
        for verb in ("insert", "update", "delete")
    ),
)
"""What makes the database itself say which processes a transaction has touched, and whether a fact was altered."""


_KEPT = {
    "clock": _BEGUN,
    "schema_reader": "UPDATE schema_reader SET oldest = 1",
}
"""Tables whose one row is made by the migrations."""


def lent(make: Callable[[], Connection]) -> Connection:
    """An empty database with its schema, and notes of what is touched in it."""
    if _idle:
        return _idle.pop()
    connection = make()
    raw = connection.raw
    for script in migrations():
        for statement in statements(script):
            raw.execute(statement)
    raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    raw.execute(f"PRAGMA user_version = {len(migrations())}")
    for statement in (_BEGUN, *_NOTES):
        raw.execute(statement)
    raw.commit()
    return connection


def given_back(connection: Connection) -> None:
    """Empty a database, to be lent again; if that fails, it is closed."""
    raw = connection.raw
    try:
        raw.rollback()
        raw.execute(f"PRAGMA user_version = {len(migrations())}")
        _drop_what_is_not_ours(raw)
        tables = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid DESC").fetchall()
        for (table,) in tables:  # those that refer to others were made after them
            raw.execute(_KEPT.get(table) or _emptied(table))
        raw.execute(_emptied("touched"))
        raw.commit()
    except sqlite3.Error:
        connection.close()
    else:
        _idle.append(connection)


def _drop_what_is_not_ours(raw: sqlite3.Connection) -> None:
    """Drop what a scenario has made there for itself, and the triggers that stand only while there is a stream."""
    for (trigger,) in raw.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'stream_*'"
    ).fetchall():
        raw.execute(f"DROP TRIGGER {trigger}")
    found = {table for (table,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table in sorted(found - _ours()):
        raw.execute(f"DROP TABLE {table}")


@cache
def _ours() -> frozenset[str]:
    return frozenset(name for script in migrations() for name in _CREATED.findall(script))


def _emptied(table: str) -> str:
    return f"DELETE FROM {table}"  # noqa: S608
