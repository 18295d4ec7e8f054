"""The ground of PostgreSQL: one migrated database for the session, emptied for each test, its clock a test's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from perdure.store.base import Store
from perdure.store.postgres import PostgresStore
from perdure.testing.clock import MovableMachine

EMPTY = (
    "TRUNCATE perdure.process, perdure.event, perdure.message, perdure.worker, perdure.key_kept;"
    "UPDATE perdure.clock SET high_water = '-infinity', fake = NULL"
)
FAKE = "UPDATE perdure.clock SET fake = timestamptz '1970-01-01 00:00:00+00' + $1 * interval '1 microsecond'"
LOCK = "SELECT FROM perdure.process WHERE id = ANY ($1) FOR UPDATE"


class ServerTime:
    """The time of a PostgreSQL store: what a test wrote into the store's own test door."""

    def __init__(self, outside: asyncpg.Connection) -> None:
        self.machine = MovableMachine()
        self._outside = outside

    async def now(self) -> int:
        """The time last written, in microseconds."""
        return self.machine.now()

    async def advance(self, seconds: float) -> int:
        """Write a later time."""
        self.machine.advance(seconds)
        return await self.write()

    async def set_back(self, seconds: float) -> None:
        """Write an earlier time."""
        self.machine.set_back(seconds)
        await self.write()

    async def write(self) -> int:
        """Write the time as it is."""
        await self._outside.execute(FAKE, self.machine.now())
        return self.machine.now()


class PostgresGround:
    """An empty PostgreSQL database; ``url`` is where the stores connect."""

    locks_rows = shared = lasting = True

    def __init__(self, url: str, outside: asyncpg.Connection) -> None:
        self.url = url
        self.outside = outside
        self.time = ServerTime(outside)

    def store(self) -> Store:
        """Another store on the same database."""
        return PostgresStore(self.url, machine=self.time.machine)

    @asynccontextmanager
    async def locked(self, *processes: bytes) -> AsyncIterator[None]:
        """Hold row locks in a transaction of our own, which changes nothing."""
        async with self.outside.transaction():
            await self.outside.execute(LOCK, [UUID(bytes=process) for process in processes])
            yield


@asynccontextmanager
async def emptied(url: str, through: str | None = None) -> AsyncIterator[PostgresGround]:
    """The ground on a migrated database, empty; its stores connect ``through`` another URL if one is given."""
    outside = await asyncpg.connect(url.partition("?")[0])
    try:
        await outside.execute(EMPTY)
        ground = PostgresGround(through or url, outside)
        await ground.time.write()
        yield ground
    finally:
        await outside.close()
