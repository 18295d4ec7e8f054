"""Starts and signals in the caller's own transaction on PostgreSQL: one call of a function of the schema.

The connection is the caller's, of asyncpg, psycopg or SQLAlchemy. None of these drivers is imported here: a caller that
hands in a connection of a driver has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from perdure import limits
from perdure.errors import BadRecord, InvalidInput, StoreError
from perdure.kernel.commit import Start, StartAnswer, StartVerdict
from perdure.kernel.message import Message, SendAnswer, SendVerdict
from perdure.kernel.names import id_bytes, id_text
from perdure.store.postgres.error import MEANINGS
from perdure.store.postgres.schema import queries
from perdure.store.postgres.url import address_of

_PLACE = re.compile(r"\$(\d+)")
_ASYNC = "sqlalchemy.ext.asyncio"
_OPEN = "Begin one first: what is written here belongs to the caller's transaction."


class Driver(Protocol):
    """The caller's connection, as this store uses it."""

    blocking: bool

    async def row(self, sql: str, given: Sequence[Any]) -> Sequence[Any]:
        """The one row that a statement answers; its parameters are ``$1``, ``$2`` … in their order."""


def asking(connection: Any) -> Driver:
    """The driver of that connection; raises InvalidInput if we do not know it, or if there is no transaction."""
    if isinstance(connection, (asyncpg.Connection, PoolConnectionProxy)):
        return Asyncpg(connection)
    for name in ("psycopg", "sqlalchemy"):
        if _is_of(name, connection):
            return (Psycopg if name == "psycopg" else SqlAlchemy)(connection)
    raise InvalidInput(
        f"a value of type {type(connection).__name__} is not a connection that can be used with a PostgreSQL store. "
        "Give one of asyncpg or psycopg, or a connection or session of SQLAlchemy."
    )


def _is_of(package: str, connection: Any) -> bool:
    known = package in sys.modules
    return known and any(part.__module__.partition(".")[0] == package for part in type(connection).__mro__)


class Asyncpg:
    """A connection of asyncpg, also one of a pool."""

    blocking = False

    def __init__(self, connection: Any) -> None:
        if not connection.is_in_transaction():
            raise InvalidInput(f"this connection of asyncpg has no transaction. {_OPEN}")
        self._connection = connection

    async def row(self, sql: str, given: Sequence[Any]) -> Sequence[Any]:
        """See Driver."""
        try:
            row: Sequence[Any] = await self._connection.fetchrow(sql, *given)
        except asyncpg.PostgresError as error:
            raise translated(error) from error
        return tuple(row)


class Psycopg:
    """A connection of psycopg 3, blocking or not."""

    def __init__(self, connection: Any) -> None:
        import psycopg

        self.blocking = not isinstance(connection, psycopg.AsyncConnection)
        if connection.autocommit and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise InvalidInput(f"this connection of psycopg has no transaction. {_OPEN}")
        self._connection = connection
        self._error = psycopg.Error
        self._cursor = {"row_factory": psycopg.rows.tuple_row}

    async def row(self, sql: str, given: Sequence[Any]) -> Sequence[Any]:
        """See Driver."""
        text = _PLACE.sub("%s", sql)
        try:
            if self.blocking:
                with self._connection.cursor(**self._cursor) as cursor:
                    row: Sequence[Any] = cursor.execute(text, given).fetchone()
                    return row
            async with self._connection.cursor(**self._cursor) as cursor:
                await cursor.execute(text, given)
                return await cursor.fetchone()  # type: ignore[no-any-return]
        except self._error as error:
            raise translated(error) from error


class SqlAlchemy:
    """A connection or session of SQLAlchemy, blocking or not; it begins its transaction by itself."""

    def __init__(self, connection: Any) -> None:
        import sqlalchemy

        self.blocking = not any(part.__module__.startswith(_ASYNC) for part in type(connection).__mro__)
        self._connection = connection
        self._text = sqlalchemy.text
        self._error = sqlalchemy.exc.DBAPIError

    async def row(self, sql: str, given: Sequence[Any]) -> Sequence[Any]:
        """See Driver."""
        statement = self._text(_PLACE.sub(r":p\1", sql))
        named = {f"p{n}": value for n, value in enumerate(given, 1)}
        try:
            asked = self._connection.execute(statement, named)
            return tuple((asked if self.blocking else await asked).one())
        except self._error as error:
            raise translated(error.orig) from error


def translated(error: Any) -> BaseException:
    """The store's own error for one that a driver raised; one that names no SQLSTATE comes back as it is."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if not state:
        return error if isinstance(error, BaseException) else StoreError(f"the driver failed: {error}; look at its log")
    kind, advice = MEANINGS.get(state) or MEANINGS.get(state[:2]) or (StoreError, "look at PostgreSQL's log")
    return kind(
        f"{error} (SQLSTATE {state}); {advice.partition('; Perdure tries')[0]}. "
        "Roll the transaction back, then run it again if that may help."
    )


class PostgresInTransaction:
    """What each method promises stands in ``store/in_transaction.py``."""

    def __init__(self, url: str, connection: Any, place: str | None = None) -> None:
        self._place = place
        self._sql = queries(address_of(url).schema)
        self._driver = asking(connection)
        self.blocking = self._driver.blocking

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process. A second start with the same (kind, key) changes nothing (rule 24)."""
        await self._be_at_home()
        process = start.process
        verdict, holder, now = await self._driver.row(
            self._sql["enqueue"],
            (
                id_text(process.id),
                process.kind,
                process.key,
                process.input,
                process.code,
                process.deadline,
                _text(process.attributes),
                process.priority,
            ),
        )
        return StartAnswer(StartVerdict(verdict), id_bytes(holder), 0, now)

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox, under the lock of the process's row, which lasts until the transaction ends."""
        await self._be_at_home()
        verdict, number, now = await self._driver.row(
            self._sql["tell"],
            (
                id_text(message.id),
                id_text(message.process),
                int(message.type),
                message.name,
                message.payload,
                message.key,
                message.sender,
                limits.INBOX_RECORDS,
                limits.INBOX_BYTES,
            ),
        )
        return SendAnswer(SendVerdict(verdict), message.process, number, None, now)

    async def _be_at_home(self) -> None:
        """Check, before the first statement, that this is the store's own database; raises InvalidInput."""
        if self._place is None:
            return
        (found,) = await self._driver.row(self._sql["place"], ())
        if found != self._place:
            raise InvalidInput(
                "this connection is to another database than the store's: no worker would find what is written there, "
                "so nothing was written. Connect to the server and database that the engine's URL names."
            )
        self._place = None


def _text(attributes: bytes | None) -> str | None:
    if attributes is None:
        return None
    try:
        return attributes.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"attributes must be JSON in UTF-8: {error}; correct the value or leave it out") from None
