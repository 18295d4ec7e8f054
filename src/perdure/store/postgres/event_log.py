"""The event log on PostgreSQL: before a page is read, what was committed meanwhile gets its places in the one order."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from perdure import limits
from perdure.kernel.event import Event
from perdure.kernel.stream import LoggedEvent, LogPage, type_of
from perdure.store.postgres.connection import PostgresConnection


class PostgresEventLog:
    """What each method promises stands in ``store/event_log.py``."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    async def read(
        self, behind: int, most: int, size: int, kinds: Sequence[str] | None = None, types: Sequence[int] | None = None
    ) -> LogPage:
        """See EventLog."""
        asked = None if kinds is None else list(kinds), None if types is None else list(types)
        *found, end = await self._connection.rows("stream_page", behind, most, size, *asked)
        return LogPage(tuple(map(_event, found)), end["place"])

    async def head(self) -> int:
        """See EventLog."""
        number: int = (await self._connection.row("stream_head"))["number"]
        return number

    async def fill(self, stream: str, since: int) -> bool:
        """See EventLog. Nobody but others who fill a stream, make or remove one waits for it."""
        filled: bool = (await self._connection.row("fill_stream", stream, since, write=True))["filled"]
        return filled

    async def trim(self) -> bool:
        """See EventLog. The end of the last stream leaves nothing here."""
        most = limits.STREAM_TRIMMED_RECORDS
        more: bool = (await self._connection.row("trim_streams", most, write=True))["more"]
        return more


def _event(found: asyncpg.Record) -> LoggedEvent:
    place, process, kind, key, code, run, number, turn, type, at, site, name, payload, digest, *rest = found
    event = Event(number, turn, type_of(type), at, site, name, payload, digest, *rest)
    return LoggedEvent(place, process, kind or "", key, code or "", run, event)
