"""The clock of a PostgreSQL store, which a test sets: in the database itself, so for all its connections at once."""

from __future__ import annotations

import asyncpg

from perdure.clock import microseconds
from perdure.store.postgres.schema import named
from perdure.store.postgres.url import address_of
from perdure.store.query import SQL, split


class DatabaseTime:
    """Stands still until it is moved, from the first :meth:`freeze` on. The schema must be there.

    ``through`` is an open connection to that database. While no transaction is open on it, it is used; otherwise each
    call makes a connection of its own.
    """

    def __init__(self, url: str, through: asyncpg.Connection[asyncpg.Record] | None = None) -> None:
        self._address = address_of(url)
        self._through = through
        file = SQL / "postgres" / "testing" / "clock.sql"
        text = named(file.read_text(encoding="utf-8"), self._address.schema)
        self._sql = dict(split(text))

    async def freeze(self, at: int | None) -> int:
        """Let the clock stand at a time in microseconds since 1970; None gives it back to the server."""
        return await self._ask("freeze_clock", at)

    async def now(self) -> int:
        """The store's time, in microseconds since 1970."""
        return await self._ask("read_clock")

    async def advance(self, seconds: float) -> int:
        """Move time on; the answer is the new time in microseconds."""
        return await self._ask("move_clock", microseconds(seconds))

    async def set_back(self, seconds: float) -> None:
        """Set the server's wall clock back, as a bad time server or a fail-over does."""
        await self._ask("move_clock", -microseconds(seconds))

    async def _ask(self, query: str, *given: int | None) -> int:
        if self._through is not None and not self._through.is_in_transaction():
            return await self._asked(self._through, query, *given)
        connection = await asyncpg.connect(self._address.dsns[0], statement_cache_size=0)
        try:
            return await self._asked(connection, query, *given)
        finally:
            await connection.close()

    async def _asked(self, connection: asyncpg.Connection[asyncpg.Record], query: str, *given: int | None) -> int:
        async with connection.transaction():
            await connection.execute(self._sql[query], *given)
            now: int = await connection.fetchval(self._sql["read_clock"])
            return now
