"""Event streams as people see and set them: who gets what happens to processes, and how far behind each is."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.view import instant
from perdure.clock import Computer
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.names import check_name
from perdure.kernel.plain import shown
from perdure.kernel.stream import EventStream, wanted
from perdure.kernel.transition import Sender
from perdure.logs import logger
from perdure.store.base import Store
from perdure.streaming.batches import StreamBatches
from perdure.streaming.delivery import Consumer, deliver
from perdure.streaming.reader import find, page_of
from perdure.streaming.record import StreamRecord, record_of
from perdure.streaming.sink import place_of, sink_for

log = logger("stream")

Events = Literal["all", "lifecycle"]
Since = Literal["now", "beginning"]


@dataclass(frozen=True, slots=True)
class EventStreamView:
    """One event stream: what it gets, where to, how far it is, and what keeps it from going on.

    ``kinds`` are the workflows whose processes it gets, None for all; ``events`` is ``all`` or ``lifecycle``. ``to`` is
    where workers deliver, without what may be secret in it; empty if a program reads. Records up to ``position`` were
    delivered, ``behind`` counts those of all kinds that come after it, ``oldest`` is the time of the next one that it
    gets. ``reader`` reads it until ``until`` or longer. ``failures`` counts how often in a row the same batch was not
    taken, ``error`` says why. ``who``, ``why`` and ``origin`` describe the last change by a person, at ``changed_at``.
    """

    name: str
    kinds: builtins.list[str] | None
    events: str
    to: str
    position: int
    behind: int
    oldest: datetime | None
    reader: str
    until: datetime | None
    failures: int
    error: str
    changed_at: datetime | None
    who: str
    why: str
    origin: str


class EventStreams:
    """The verbs on event streams: ``engine.streams``."""

    def __init__(self, store: Store, machine: Computer) -> None:
        self._store = store
        self._machine = machine

    async def put(
        self,
        name: str,
        *,
        kinds: Sequence[str] | None = None,
        events: Events = "all",
        to: str | None = None,
        since: Since | datetime = "now",
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> EventStreamView:
        """Make an event stream, or change the one of that name; a new one begins with what is committed ``since`` then.

        ``since`` is ``"now"``, ``"beginning"`` or an instant (a datetime with a zone): what is stored since then comes
        first, in the order of time, and then what is committed later. What was removed by now does not come.

        It gets the events of processes of these ``kinds`` (names of workflows, and of queues with their ``@``; default:
        all but queued steps and the library's own processes), or with ``events="lifecycle"`` only how their lives go
        on. ``to`` is a URL to which workers deliver, ``https://…`` or ``redis://…``; it stands in the database as it
        is. Without it a program reads: see :meth:`read` and :meth:`follow`. A change keeps the position, and takes no
        ``since``.

        Raises InvalidInput, InvalidKey, IllegalMove; StoreUnavailable if a transaction of another program keeps the
        database from beginning to log events, or if what is stored could not be found in time: put it again then.
        """
        validation.outside_a_turn()
        check_name(name, "the name of the event stream")
        if events not in ("all", "lifecycle"):
            raise InvalidInput(f"events= is {shown(events)}. Give 'all' or 'lifecycle'.")
        if to is not None:
            await sink_for(to).close()  # made to see whether it can be
        begin = validation.since(since, await self._store.now())
        set_so = {
            "kinds": wanted(kinds),
            "lifecycle": events == "lifecycle",
            "sink": to or "",
            "failures": 0,
            "error": "",
        }
        await self._trim()  # what a removal has left whose program ended first
        row = await self._changed(name, validation.sender(who, why, origin), stored=begin is not None, **set_so)
        if begin is not None:
            # If we die here nobody reads the stream, which keeps the whole log, until it is put again.
            await self._store.backend.event_log.fill(name, begin)
            row = await find(self._store, name)
        log.info("event stream %s is delivered to %s", name, place_of(row.sink) or "programs that read it")
        return await self._view(row)

    async def list(self) -> builtins.list[EventStreamView]:
        """Every event stream, by name."""
        validation.outside_a_turn()
        return [await self._view(row) for row in await self._store.records(EventStream)]

    async def state(self, name: str) -> EventStreamView:
        """Read one event stream; raises StreamNotFound."""
        validation.outside_a_turn()
        return await self._view(await find(self._store, name))

    async def remove(self, name: str) -> None:
        """Remove an event stream with its position; after the last one nothing is logged. Raises StreamNotFound."""
        validation.outside_a_turn()
        for _ in range(limits.COMMAND_TRIES):
            row = await find(self._store, name)
            if all(one.name != name for one in await self._store.records(EventStream, [row.next(removed=True)])):
                # If we die here the rest goes when another stream moves on, or is made.
                await self._trim()
                log.info("event stream %s was removed", name)
                return
        raise IllegalMove(f"event stream {name} kept changing meanwhile; nothing was done, try again")

    def read(self, name: str, *, wait: bool = True) -> StreamBatches:
        """The batches of records that were not handled yet, for ``async for``; see :class:`StreamBatches`.

        One reader reads a stream at a time; a second one waits until the first has gone, or has not renewed its lease
        for 15 seconds. Without ``wait`` the batches end when nothing more is committed, and a second reader gets
        IllegalMove. The batches raise StreamNotFound and StoreError.
        """
        validation.outside_a_turn()
        return StreamBatches(self._store, name, self._machine, wait=wait)

    async def follow(self, name: str, consume: Consumer, *, wait: bool = True) -> None:
        """Await ``consume(batch)`` for each batch, in order, until this is cancelled; without ``wait`` until the end.

        When it returns the batch was handled, and the position moves. If it raises, the same batch comes again after
        1, 2, 4 … seconds, at most a minute: see the stream's ``failures``. Raises StreamNotFound, IllegalMove,
        StoreError, as :meth:`read`.
        """
        async with self.read(name, wait=wait) as batches:
            await deliver(batches, consume, self._machine)

    async def tail(self, name: str, limit: int = 20) -> builtins.list[StreamRecord]:
        """The next records that the stream gets, at most ``limit``, without moving it.

        Raises StreamNotFound; IllegalMove while what is stored, and comes first, is not in the log yet.
        """
        validation.rows(limit, "the limit")
        row = await find(self._store, name)
        if row.unfilled:
            raise IllegalMove(
                f"event stream {name} is to begin with what is stored, for which its `put` still looks; wait until "
                "that has ended, or, if it was stopped, put the stream again with since="
            )
        found: builtins.list[StreamRecord] = []
        behind = row.position or 0
        while len(found) < limit:
            page = await page_of(self._store, row, behind)
            if page.upto == behind:
                break
            behind = page.upto
            found += map(record_of, page.events)
        return found[:limit]

    async def _changed(self, name: str, sender: Sender, *, stored: bool, **changes: Any) -> EventStream:
        """Write a stream with these changes; if somebody else has written it meanwhile, try again.

        With ``stored`` a new one is to begin with what is stored; raises IllegalMove for one that is there already.
        """
        said = {"who": sender.who, "why": sender.why, "origin": sender.origin}
        for _ in range(limits.COMMAND_TRIES):
            old = next((row for row in await self._store.records(EventStream) if row.name == name), EventStream(name))
            if old.version == 0 and stored:
                old = old.begun_with_what_is_stored()
            if old.unfilled and not stored:
                raise IllegalMove(f"event stream {name} was to begin with what is stored: put it again with since=")
            if stored and not old.unfilled:
                raise IllegalMove(
                    f"event stream {name} is there, and keeps its position; leave since= out, or remove it"
                )
            new = old.next(**changes, **said, changed_at=await self._store.now())
            for row in await self._store.records(EventStream, [new]):
                if row == replace(new, position=row.position if new.position is None else new.position):
                    return row
        raise IllegalMove(f"event stream {name} kept changing meanwhile; nothing was done, try again")

    async def _trim(self) -> None:
        """Remove from the log what no stream needs: in portions, so that others write meanwhile."""
        while await self._store.backend.event_log.trim():
            pass

    async def _view(self, row: EventStream) -> EventStreamView:
        head = await self._store.backend.event_log.head()
        position = head if row.unfilled else row.position or 0
        page = await page_of(self._store, row, position, 0)
        behind = max(0, head - position)
        return EventStreamView(
            name=row.name,
            kinds=row.wanted_kinds(),
            events="lifecycle" if row.lifecycle else "all",
            to=place_of(row.sink),
            position=position,
            behind=behind,
            oldest=record_of(page.events[0]).at if page.events else None,
            reader=row.owner,
            until=instant(row.until) if row.owner else None,
            failures=row.failures,
            error=row.error,
            changed_at=instant(row.changed_at) if row.changed_at else None,
            who=row.who,
            why=row.why,
            origin=row.origin,
        )
