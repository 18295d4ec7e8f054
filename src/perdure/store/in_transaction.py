"""The store's two doors for newcomers, start and send, inside a transaction that belongs to the caller.

The caller's connection does it, whichever driver's it is: if his transaction commits, the process or message is there,
and workers are woken; if it is rolled back, nothing ever happened. Nothing here commits, rolls back or tries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from perdure.clock import Machine
from perdure.errors import InvalidInput
from perdure.kernel.commit import Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer
from perdure.store.base import Store
from perdure.store.failover import lineage_of
from perdure.store.query import load

if TYPE_CHECKING:
    from sqlite3 import Connection


class StoreInTransaction(Protocol):
    """What a store does on a connection of the caller's. With a blocking connection nothing here ever waits."""

    @property
    def blocking(self) -> bool:
        """Whether the connection's calls block, so that nothing is awaited."""

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process; its ``deadline`` is in microseconds from now, by the store's clock."""

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox."""


def store_in_transaction(store: Store, connection: Any, machine: Machine) -> StoreInTransaction:
    """The store on that connection; raises InvalidInput where there can be none."""
    from perdure.store.sealed.store import SealedStore

    if isinstance(store, SealedStore):
        from perdure.store.sealed.store import SealedInTransaction

        return SealedInTransaction(store_in_transaction(store.store, connection, machine), store)
    if store.url.startswith("sqlite:"):
        from perdure.store.sqlite.in_transaction import SqliteInTransaction

        return SqliteInTransaction(store.url, _behind(connection), machine)
    from perdure.store.postgres.in_transaction import PostgresInTransaction

    lineage = lineage_of(store)
    return PostgresInTransaction(store.url, connection, None if lineage is None else lineage.place)


def _behind(connection: Any) -> Connection:
    """The connection of the standard library behind one of SQLAlchemy, or itself."""
    import sqlite3

    if hasattr(connection, "get_bind"):  # a session
        connection = connection.connection()
    raw = getattr(getattr(connection, "connection", None), "driver_connection", connection)
    if raw is not connection and not getattr(raw, "in_transaction", True):
        connection.exec_driver_sql(load("sqlite")["begin_immediate"])  # so that SQLAlchemy knows of it, and commits
    if not isinstance(raw, sqlite3.Connection):
        raise InvalidInput(
            f"a connection of type {type(connection).__name__} cannot be used with a SQLite store. "
            "Give one that sqlite3.connect made on the same file."
        )
    return raw
