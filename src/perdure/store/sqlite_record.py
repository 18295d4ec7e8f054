"""Small tables on SQLite: rows that people name and set, read and written whole."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from perdure.kernel.clock import Clock
from perdure.store.base import Record
from perdure.store.sqlite_clock import SqliteClock
from perdure.store.sqlite_connection import Connection
from perdure.store.sqlite_text import listed
from perdure.store.sqlite_writer import Transaction


def read(connection: Connection, table: type[Record], clock: SqliteClock | None = None) -> list[Record]:
    """All rows of a small table, by name."""
    if clock is not None and issubclass(table, Clock):
        return clock.rows(connection)
    (found,) = connection.one(f"read_{table.__name__.lower()}s")
    return [table(*fields) for fields in listed(found)]


def write(transaction: Transaction, table: type[Record], changes: Sequence[Record], clock: SqliteClock) -> list[Record]:
    """Write each change whose version is the next one; all rows as they are then."""
    if issubclass(table, Clock):
        return clock.rows(transaction.connection, changes)
    for change in changes:
        if transaction.connection.run(f"write_{table.__name__.lower()}", **asdict(change)) > 0:
            transaction.left_due = True  # what waited in a queue may be due for others now
    return read(transaction.connection, table)
