"""The event log on SQLite: one transaction writes at a time, so the numbers of its rows are positions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import json
from msgspec.structs import asdict

from perdure import limits
from perdure.kernel.event import Event
from perdure.kernel.stream import UNFILLED, EventStream, LoggedEvent, LogPage, type_of
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.text import listed
from perdure.store.sqlite.writer import Transaction

TRIMMED = ("stream_record", "stream_kept", "stream_gone")
TRIGGERS = ("stream_created", "stream_begun", "stream_events", "stream_keep", "stream_removed")


class SqliteEventLog:
    """What each method promises stands in ``store/event_log.py``."""

    def __init__(
        self,
        read: Callable[[Callable[[Connection], tuple[Any, ...]]], Awaitable[tuple[Any, ...]]],
        write: Callable[[Callable[[Transaction], bool]], Awaitable[bool]],
    ) -> None:
        self._read = read
        self._write = write

    async def read(
        self, behind: int, most: int, size: int, kinds: Sequence[str] | None = None, types: Sequence[int] | None = None
    ) -> LogPage:
        """See EventLog."""
        given = {"behind": behind, "most": most, "bytes": size, "kinds": _array(kinds), "types": _array(types)}
        heads, body, upto = await self._read(lambda connection: connection.one("read_stream", **given))
        events, at = [], 0
        for head in listed(heads):
            event, at = _event(head, body or b"", at)
            events.append(event)
        return LogPage(tuple(events), upto)

    async def head(self) -> int:
        """See EventLog."""
        (number,) = await self._read(lambda connection: connection.one("stream_head"))
        return int(number)

    async def fill(self, stream: str, since: int) -> bool:
        """See EventLog. All that write wait for it."""
        return await self._write(lambda transaction: _filled(transaction.connection, stream, since))

    async def trim(self) -> bool:
        """See EventLog."""
        return await self._write(lambda transaction: _trimmed(transaction.connection))


def _filled(connection: Connection, stream: str, since: int) -> bool:
    (unfilled,) = connection.one("is_unfilled", name=stream, unfilled=UNFILLED)
    if unfilled:
        connection.run("fill_stream", since=since)
        connection.run("begin_filled_stream", name=stream)
    return bool(unfilled)


def write(transaction: Transaction, changes: Sequence[EventStream]) -> None:
    """Write each stream whose version is the next one; there are triggers exactly while there are streams."""
    connection = transaction.connection
    if any(change.version == 1 for change in changes):
        while _trimmed(connection):
            pass  # what another stream has left, and its remover has not trimmed: no new stream is told of it
    for change in changes:
        given = asdict(change)
        name = "remove_eventstream" if given.pop("removed") else "write_eventstream"
        connection.run(name, **given)
    streams, triggers = connection.one("count_eventstreams")
    if streams and not triggers:
        connection.run("forget_last_record")
        for name in TRIGGERS:
            connection.define(name)
    elif triggers and not streams:
        for name in TRIGGERS:
            connection.define(f"drop_{name}")
    _trimmed(connection)


def _trimmed(connection: Connection) -> bool:
    """Remove a portion of what every stream has had; whether more of it may be left."""
    most = limits.STREAM_TRIMMED_RECORDS
    return most in [connection.run(f"trim_{table}", most=most) for table in TRIMMED]


def renew_triggers(connection: Connection) -> None:
    """Make the triggers of a database anew after its migration, if it has streams: as this Perdure wants them."""
    _, triggers = connection.one("count_eventstreams")
    if triggers:
        for name in TRIGGERS:
            connection.define(f"drop_{name}")
            connection.define(name)


def _array(values: Sequence[Any] | None) -> str | None:
    return None if values is None else json.encode(list(values)).decode()


def _event(head: list[Any], body: bytes, at: int) -> tuple[LoggedEvent, int]:
    (
        place, process, kind, key, code, run, number, turn, type, time, site, name, payload, digest, message, token,
        version,
    ) = head  # fmt: skip
    plain = None if payload is None else body[at : at + payload]
    at += payload or 0
    hashed = None if digest is None else body[at : at + digest]
    event = Event(number, turn, type_of(type), time, site, name, plain, hashed, message, token, version)
    return LoggedEvent(place, bytes.fromhex(process), kind or "", key, code or "", run, event), at + (digest or 0)
