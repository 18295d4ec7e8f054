"""The ground of PostgreSQL: one migrated database for the session, emptied for each test, its clock a test's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from uuid import UUID

import asyncpg

from perdure.store.base import Store
from perdure.store.postgres.store import PostgresStore
from perdure.testing.clock import NOON
from perdure.testing.postgres_clock import DatabaseTime
from tests.kept_sessions import KeptSessions
from tests.store import damage as values

FULL = "SELECT (SELECT count(*) FROM perdure.process) + (SELECT count(*) FROM perdure.event)"
ENDED_WORKERS = """
    INSERT INTO perdure.worker (id, name, hosts, started_at, beats, locked, ended_at, died)
    SELECT gen_random_uuid(), 'w', decode(repeat('00', 1900), 'hex'), t, 0, true, t, true
    FROM generate_series(1, $1), (SELECT perdure.now()) AS k(t)
"""
"""So many workers that have ended, each with all that it hosted."""

TRUNCATE = (
    "TRUNCATE perdure.process, perdure.event, perdure.message, perdure.worker, perdure.key_kept, perdure.queue, "
    "perdure.circuit, perdure.leader, perdure.note, perdure.finding, perdure.audit"
)
DELETE = (
    "DELETE FROM perdure.process; DELETE FROM perdure.event; DELETE FROM perdure.message;"
    "DELETE FROM perdure.worker; DELETE FROM perdure.key_kept; DELETE FROM perdure.queue; "
    "DELETE FROM perdure.circuit; DELETE FROM perdure.leader; DELETE FROM perdure.note; "
    "DELETE FROM perdure.finding; DELETE FROM perdure.audit"
)
NO_STREAMS = """
    SELECT perdure.close_inlet() WHERE EXISTS (SELECT FROM perdure.event_stream);
    DELETE FROM perdure.event_stream;
    UPDATE perdure.stream_head SET number = 0 WHERE number > 0
"""
RESET = """
    UPDATE perdure.clock SET high_water = '-infinity', fake = perdure.instant($1), lead = '0',
        lead_since = NULL, slewed_at = NULL, mending = false, version = 0
"""
LOCK = "SELECT FROM perdure.process WHERE id = ANY ($1) FOR UPDATE"
FEW = 300
"""Rows up to which deleting them is quicker than truncating the tables."""


class PostgresGround:
    """An empty PostgreSQL database; ``url`` is where the stores connect, ``outside`` a connection past them."""

    locks_rows = shared = lasting = inside = True

    def __init__(self, url: str, direct: str, outside: asyncpg.Connection) -> None:
        self.url = url
        self.hints = url == direct
        self.outside = outside
        self.time = DatabaseTime(direct, outside)

    def store(self) -> Store:
        """Another store on the same database."""
        return PostgresStore(self.url)

    @asynccontextmanager
    async def locked(self, *processes: bytes) -> AsyncIterator[None]:
        """Hold row locks in a transaction of our own, which changes nothing."""
        async with self.outside.transaction():
            await self.outside.execute(LOCK, [UUID(bytes=process) for process in processes])
            yield

    def damages(self, table: str) -> Sequence[str]:
        """Bad values, as far as the types of the columns have room for them."""
        return values.named(values.POSTGRES, table)

    async def damage(self, store: Store, row: bytes, table: str, damage: str) -> bool:
        """Write one with the connection of nobody's; the constraints are kept."""
        named = ("queue", "circuit", "leader", "note", "event_stream")
        given: UUID | str = row.decode() if table in named else UUID(bytes=row)
        try:
            async with self.outside.transaction():
                done = await self.outside.execute(values.statement("perdure.", table, damage, "$1"), given)
        except asyncpg.PostgresError:
            return False
        return done.endswith(" 1")


async def empty(outside: asyncpg.Connection, at: int | None = None) -> None:
    """Take every record out of the database; its clock then stands at that time, or is the server's own."""
    await outside.execute(NO_STREAMS)
    few = await outside.fetchval(FULL) <= FEW
    await outside.execute(DELETE if few else TRUNCATE)
    await outside.execute(RESET, at)


@asynccontextmanager
async def emptied(
    url: str, through: str | None = None, kept: KeptSessions | None = None
) -> AsyncIterator[PostgresGround]:
    """The ground on a migrated database, empty; its stores connect ``through`` another URL if one is given.

    With sessions that are ``kept``, its stores at the URL itself and its connection past them use these.
    """
    with kept.of(url) if kept else nullcontext():
        async with _emptied(url, through, kept.url(url) if kept else url) as ground:
            yield ground


@asynccontextmanager
async def _emptied(url: str, through: str | None, past: str) -> AsyncIterator[PostgresGround]:
    outside = await asyncpg.connect(past)
    try:
        await empty(outside, NOON)
        yield PostgresGround(through or url, url, outside)
    finally:
        await outside.close()
