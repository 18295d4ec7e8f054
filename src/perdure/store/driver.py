"""Drivers of PostgreSQL: one statement, one row, on a connection of asyncpg, psycopg or SQLAlchemy.

None of them is imported here: whoever hands in a connection of a driver has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from perdure.errors import InvalidInput, StoreError
from perdure.store.postgres_error import MEANINGS

_PLACE = re.compile(r"\$(\d+)")
_ASYNC = "sqlalchemy.ext.asyncio"
_OPEN = "Begin one first: what a guest writes belongs to the caller's transaction."


class Driver(Protocol):
    """A connection as we ask it."""

    blocking: bool

    async def row(self, sql: str, given: Sequence[Any]) -> Sequence[Any]:
        """The one row that a statement answers; its places are ``$1``, ``$2`` … in their order."""


def asking(connection: Any) -> Driver:
    """How to ask that connection; raises InvalidInput if it is of no driver that we know, or has no transaction."""
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
        f"{error} (SQLSTATE {state}); {advice.partition('; it is tried')[0]}. "
        "Roll the transaction back, then run it again if that may help."
    )
