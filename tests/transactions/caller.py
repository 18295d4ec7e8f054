"""Callers: programs with a database transaction of their own, one for each driver, all asked in one way."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


async def done(answer: Any) -> Any:
    """What a call answered, awaited where it must be."""
    return await answer if isawaitable(answer) else answer


class Caller:
    """A connection with an open transaction; ``text`` makes of SQL what this driver takes."""

    def __init__(self, connection: Any, text: Callable[[str], Any] = str) -> None:
        self.connection = connection
        self._text = text

    async def run(self, sql: str) -> None:
        """Run a statement in the caller's transaction."""
        await done(self.connection.execute(self._text(sql)))

    async def end(self, *, commit: bool) -> None:
        """Commit, or roll back."""
        await done(self.connection.commit() if commit else self.connection.rollback())


class AsyncpgCaller(Caller):
    """asyncpg ends a transaction by the object that began it."""

    def __init__(self, connection: Any, transaction: Any) -> None:
        super().__init__(connection)
        self._transaction = transaction

    async def end(self, *, commit: bool) -> None:
        await (self._transaction.commit() if commit else self._transaction.rollback())


def address(url: str, scheme: str = "postgresql") -> str:
    """The URL as drivers and SQLAlchemy's dialects want it."""
    return scheme + url.partition("?")[0][len("postgresql") :]


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Caller]:
    pool = await asyncpg.create_pool(address(url), min_size=1, max_size=1)
    async with pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield AsyncpgCaller(connection, transaction)


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Caller]:
    connection = psycopg.connect(address(url), row_factory=psycopg.rows.dict_row)
    try:
        yield Caller(connection)
    finally:
        connection.close()


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[Caller]:
    connection = await psycopg.AsyncConnection.connect(address(url))
    try:
        yield Caller(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[Caller]:
    if url.startswith("sqlite:"):
        engine = sqlalchemy.create_engine(url, connect_args={"timeout": 5})
    else:
        engine = sqlalchemy.create_engine(address(url, "postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            yield Caller(connection, sqlalchemy.text)
    finally:
        engine.dispose()


@asynccontextmanager
async def by_session(url: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(url if url.startswith("sqlite:") else address(url, "postgresql+psycopg"))
    try:
        with Session(engine) as session:
            yield Caller(session, sqlalchemy.text)
    finally:
        engine.dispose()


@asynccontextmanager
async def by_async_sqlalchemy(url: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(address(url, "postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:
            yield Caller(connection, sqlalchemy.text)
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_async_session(url: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(address(url, "postgresql+psycopg"))
    try:
        async with AsyncSession(engine) as session:
            yield Caller(session, sqlalchemy.text)
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_sqlite3(url: str) -> AsyncIterator[Caller]:
    """The driver begins transactions by itself, before what changes something."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.row_factory = lambda cursor, row: {"strange": row}
    try:
        yield Caller(connection)
    finally:
        connection.close()


@asynccontextmanager
async def by_sqlite3_immediate(url: str) -> AsyncIterator[Caller]:
    """The caller begins his transactions himself."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield Caller(connection)
    finally:
        connection.close()


CALLERS = {
    "postgres": (
        by_asyncpg, by_psycopg, by_async_psycopg, by_sqlalchemy, by_session, by_async_sqlalchemy, by_async_session,
    ),
    "sqlite": (by_sqlite3, by_sqlite3_immediate, by_sqlalchemy, by_session),
}  # fmt: skip
"""Who may call, on each kind of store."""
