"""The shop's own database: stock, charges, shipments and letters. It knows nothing of Perdure.

Every effect comes with an idempotency key. The tables themselves would let an order be charged twice; it is the key
alone that makes a repeated request an effect that has been given already. ``request`` counts how often somebody asked.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

SCHEMA = "perdure_demo_shop"
TABLES = (
    "CREATE TABLE stock (good text PRIMARY KEY, on_hand integer NOT NULL CHECK (on_hand >= 0))",
    "CREATE TABLE reservation (key text PRIMARY KEY, order_id text NOT NULL, good text NOT NULL, quantity integer)",
    "CREATE TABLE release (key text PRIMARY KEY, order_id text NOT NULL, good text NOT NULL, quantity integer)",
    "CREATE TABLE charge (key text PRIMARY KEY, order_id text NOT NULL, cents integer NOT NULL)",
    "CREATE TABLE shipment (key text PRIMARY KEY, order_id text NOT NULL)",
    "CREATE TABLE letter (key text PRIMARY KEY, order_id text NOT NULL, words text NOT NULL)",
    "CREATE TABLE request (effect text NOT NULL, order_id text NOT NULL, key text NOT NULL)",
)
REQUEST = "INSERT INTO request VALUES ($1, $2, $3)"

Statement = tuple[str, Sequence[Any]]


class OutOfStock(Exception):
    """The shelf does not hold as much as was ordered; nothing was changed."""


class Link(Protocol):
    """One way to the database: SQLite or PostgreSQL."""

    async def change(self, statements: Sequence[Statement]) -> bool:
        """Run the statements in one transaction: a request, a guarded effect, and what follows from a new effect."""

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a question."""

    async def run(self, statements: Sequence[str]) -> None:
        """Run statements that have no parameters."""

    async def close(self) -> None:
        """Let go of it."""


class Shop:
    """What the shop can do. Each method may be called any number of times with the same key and acts once."""

    def __init__(self, link: Link) -> None:
        self.link = link

    @classmethod
    async def at(cls, url: str) -> Shop:
        """The shop whose database is at ``url``."""
        return cls(_File(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else await _server(url))

    async def found(self, stock: Sequence[tuple[str, int]]) -> None:
        """Make empty tables and fill the shelves."""
        await self.link.run(TABLES)
        for good, on_hand in stock:
            await self.link.change([("INSERT INTO stock VALUES ($1, $2)", (good, on_hand))])

    async def reserve(self, key: str, order: str, good: str, quantity: int) -> None:
        """Take goods off the shelf; raises OutOfStock."""
        insert = (
            "INSERT INTO reservation (key, order_id, good, quantity) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
        )
        take = "UPDATE stock SET on_hand = on_hand - $2 WHERE good = $1 AND on_hand >= $2"
        await self.link.change(
            [(REQUEST, ("reserve", order, key)), (insert, (key, order, good, quantity)), (take, (good, quantity))]
        )

    async def release(self, key: str, order: str, good: str, quantity: int) -> None:
        """Put goods back on the shelf."""
        insert = "INSERT INTO release VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
        put = "UPDATE stock SET on_hand = on_hand + $2 WHERE good = $1"
        await self.link.change(
            [(REQUEST, ("release", order, key)), (insert, (key, order, good, quantity)), (put, (good, quantity))]
        )

    async def charge(self, key: str, order: str, cents: int) -> None:
        """Take the money."""
        insert = "INSERT INTO charge VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        await self.link.change([(REQUEST, ("charge", order, key)), (insert, (key, order, cents))])

    async def ship(self, key: str, order: str) -> None:
        """Hand the parcel to the carrier."""
        insert = "INSERT INTO shipment VALUES ($1, $2) ON CONFLICT DO NOTHING"
        await self.link.change([(REQUEST, ("ship", order, key)), (insert, (key, order))])

    async def write(self, key: str, order: str, words: str) -> None:
        """Send a letter to the customer."""
        insert = "INSERT INTO letter VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
        await self.link.change([(REQUEST, ("write", order, key)), (insert, (key, order, words))])


class _File:
    """A SQLite file with one connection in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shop")
        self._connection = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")

    async def change(self, statements: Sequence[Statement]) -> bool:
        return await self._call(self._change, statements)

    def _change(self, statements: Sequence[Statement]) -> bool:
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:  # commits, or rolls back if it is left by an error
            for place, (sql, values) in enumerate(statements):
                named = {str(number): value for number, value in enumerate(values, 1)}
                count = self._connection.execute(sql, named).rowcount
                if _enough(place, count):
                    return False
        return True

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await self._call(lambda: self._connection.execute(sql).fetchall())

    async def run(self, statements: Sequence[str]) -> None:
        await self._call(lambda: [self._connection.execute(sql) for sql in statements])

    async def close(self) -> None:
        await self._call(self._connection.close)
        self._thread.shutdown()

    async def _call(self, work: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)


class _Server:
    """A schema of its own on PostgreSQL."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def change(self, statements: Sequence[Statement]) -> bool:
        async with self._pool.acquire() as connection, connection.transaction():
            for place, (sql, values) in enumerate(statements):
                answer = await connection.execute(sql, *values)
                if _enough(place, int(answer.rpartition(" ")[2])):
                    return False
        return True

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._pool.fetch(sql)]

    async def run(self, statements: Sequence[str]) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            await connection.execute(f"CREATE SCHEMA {SCHEMA}")
            for sql in statements:
                await connection.execute(sql)

    async def close(self) -> None:
        await self._pool.close()


async def _server(url: str) -> _Server:
    import asyncpg

    pool = await asyncpg.create_pool(
        url.partition("?")[0],
        min_size=1,
        max_size=8,
        statement_cache_size=0,
        server_settings={"search_path": SCHEMA},
    )
    return _Server(pool)


def _enough(place: int, count: int) -> bool:
    """Whether to stop: the effect (second statement) had been given already. A shelf that is too empty is an error."""
    if count:
        return False
    if place == 1:
        return True
    raise OutOfStock("there is not enough on the shelf")
