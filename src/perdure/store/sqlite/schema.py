"""The schema of a SQLite store: numbered migrations, each in one transaction under the write lock.

A new database gets them all in one transaction: whoever opens it meanwhile finds no schema or the whole of it. One in
memory, which nobody else can open, gets the pages of the first that this program has made.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache

from perdure.errors import StoreError, StoreTooOld
from perdure.store.migrate import EMPTY, refuse_too_new, steps
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.event_log import renew_triggers
from perdure.store.sqlite.writer import Writer

APPLICATION_ID = 0x50455244
"""``PERD`` in the file's header: what `file` shows, and how a foreign database is told apart."""


@cache
def migrations() -> tuple[str, ...]:
    """The texts of the migrations in order; the first has number 1, and none is missing."""
    return tuple(step.sql for step in steps("sqlite"))


def prepare(connection: Connection, writer: Writer, *, migrate: bool) -> None:
    """Bring the schema up to this Perdure's, or raise the reason why that is impossible.

    Many starters may do so at once: each looks again under the write lock which migrations are left. While one of them
    turns write-ahead logging on, even a read may find the file busy: this may be called again at any point.
    """
    version = _version(connection)
    if version >= len(migrations()):
        _use_wal(connection)
        return
    if version == 0 and connection.in_memory and hasattr(connection.raw, "serialize"):
        _copy(connection)
        return
    if version == 0:
        _refuse_foreign(connection)
    elif not migrate:
        raise StoreTooOld(
            f"the database has schema {version}, this Perdure needs {len(migrations())}; run `perdure migrate`"
        )
    if not migrate:
        raise StoreTooOld(EMPTY)
    _use_wal(connection)
    while version < len(migrations()):
        version = writer.locked(connection, lambda: _step(connection))


def _version(connection: Connection) -> int:
    version = int(connection.raw.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations()):
        refuse_too_new("sqlite", version, connection.one("read_schema")[1])
    return version


def _refuse_foreign(connection: Connection) -> None:
    (application,) = connection.raw.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.one("count_tables")
    foreign = application not in (0, APPLICATION_ID) or (tables and application != APPLICATION_ID)
    # Another starter may have migrated between the looks; then the version is no longer 0.
    if foreign and _version(connection) == 0:
        raise StoreError("the file is the database of another program; name a file of its own in the URL")


def _use_wal(connection: Connection) -> None:
    """Turn write-ahead logging on, which lasts; for a moment no other connection may use the file."""
    if connection.in_memory:
        return
    (mode,) = connection.raw.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"write-ahead logging is not possible here (the file's mode is {mode}); "
            "put the database on a local disk, not on a network share"
        )


def _step(connection: Connection) -> int:
    """Apply the next migration, or all to a new database, if any is left; the answer is the version after it."""
    version = _version(connection)
    if version >= len(migrations()):
        return version
    reached = version + 1 if version else len(migrations())
    # If we die before the COMMIT the number and the tables are rolled back together: the next starter does it all.
    _apply(connection.raw, migrations()[version:reached], reached)
    if reached == len(migrations()):
        renew_triggers(connection)
    return reached


def _apply(raw: sqlite3.Connection, steps: tuple[str, ...], reached: int) -> None:
    for migration in steps:
        for statement in statements(migration):
            raw.execute(statement)
    raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    raw.execute(f"PRAGMA user_version = {reached}")


def _copy(connection: Connection) -> None:
    """Make a new database in memory: some pages are copied in a hundredth of the time that all migrations take."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.deserialize(_made(migrations()))
        made.backup(connection.raw)
    connection.run("begin_line")
    connection.raw.commit()


@cache
def _made(all: tuple[str, ...]) -> bytes:
    """The pages of a new database; some builds of Python cannot give them, and a new database migrates there."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        _apply(made, all, len(all))
        return made.serialize()


def statements(script: str) -> list[str]:
    """The statements of a migration, which end with a semicolon at the end of a line."""
    return [part.strip() for part in re.split(r";[ \t]*$", script, flags=re.MULTILINE) if part.strip()]
