"""The ground of PostgreSQL: one schema of its own for each test, its clock in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from perdure.store.postgres import PostgresStore
from perdure.store.postgres_url import address_of
from perdure.testing.clock import NOON
from perdure.testing.postgres import at_once
from perdure.testing.postgres_clock import DatabaseTime


class PostgresGround:
    """One empty schema, migrated, at noon of the tests' day. ``direct`` is its URL past any pooler."""

    shared = lasting = locks_rows = True

    def __init__(self, url: str, direct: str) -> None:
        self.url = url
        self.direct = direct
        self.schema = address_of(url).schema
        self.time = DatabaseTime(direct)
        at_once(self._prepare)

    async def _prepare(self) -> None:
        store = PostgresStore(self.direct)
        await store.open()
        await store.close()
        await self.time.freeze(NOON)

    def store(self) -> PostgresStore:
        """Another store on the same schema."""
        return PostgresStore(self.url)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A connection that is nobody's, in the schema."""
        connection = await asyncpg.connect(address_of(self.direct).dsn, server_settings={"search_path": self.schema})
        try:
            yield connection
        finally:
            await connection.close()

    async def ask(self, sql: str, *given: Any) -> Sequence[asyncpg.Record]:
        """The rows of a statement run from outside."""
        async with self.session() as session:
            return list(await session.fetch(sql, *given))

    @asynccontextmanager
    async def locked(self, *processes: bytes) -> AsyncIterator[None]:
        """Hold the locks of these process rows from a connection that is nobody's."""
        async with self.session() as session, session.transaction():
            await session.fetch(
                "SELECT FROM process WHERE id = ANY ($1::text[]::uuid[]) FOR UPDATE", [one.hex() for one in processes]
            )
            yield

    def remove(self) -> None:
        """Drop the schema, whoever still looks at it."""

        async def drop() -> None:
            await self.ask(f'DROP SCHEMA "{self.schema}" CASCADE')

        at_once(drop)
