"""A snapshot: a process with its history and its inbox, all as they were at one commit, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from msgspec import Struct

from perdure import limits
from perdure.client.finding.finder import Finder
from perdure.errors import StoreUnavailable
from perdure.kernel.archive import needed
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.store.base import Search, Store

AT_ONCE = 50
"""How many processes are read side by side."""
EVENTS_AT_ONCE = 20_000
"""Together they have no more events than this, unless it is the history of one process."""


class Snapshot(Struct, frozen=True):
    """A process as it was: its row, the events of its run, and the messages that this run needs."""

    process: Process
    events: Sequence[Event]
    messages: Sequence[Message]


async def snapshots(store: Store, finder: Finder) -> AsyncIterator[list[Snapshot]]:
    """All processes that the finder finds, a portion at a time; those that are removed meanwhile are left out."""
    async for page in finder.candidates():
        for portion in _portions([one.row for one in page]):
            read = await asyncio.gather(*(snapshot(store, row) for row in portion))
            yield [one for one in read if one is not None]


def _portions(rows: Sequence[Process]) -> Iterator[list[Process]]:
    portion: list[Process] = []
    events = 0
    for row in rows:
        if portion and (len(portion) == AT_ONCE or events + row.events > EVENTS_AT_ONCE):
            yield portion
            portion, events = [], 0
        portion.append(row)
        events += row.events
    if portion:
        yield portion


async def snapshot(store: Store, row: Process) -> Snapshot | None:
    """The process whose row was just read; None if it was removed meanwhile. Raises StoreUnavailable."""
    for _ in range(limits.COMMAND_TRIES):
        events = await store.history(row.id, row.run, limit=row.events) if row.events else []
        messages = await store.messages([(row.id, 0)]) if row.inbox else []
        found = await store.search(Search(ids=(row.id,))) if len(events) < row.events else [row]
        if not found:
            return None
        if found[0].run == row.run:
            return Snapshot(row, events, needed(row, events, messages))
        row = found[0]  # it is in another run now, and the events of that one were removed
    raise StoreUnavailable(f"process {id_text(row.id)} kept changing while it was read; try again")
