"""Snapshots of all processes that a query fits, a portion at a time: memory is bounded, whatever their number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from perdure.client.finding.finder import Finder
from perdure.kernel.process import Process
from perdure.store.base import Store
from perdure.store.snapshot import Snapshot, snapshot

AT_ONCE = 50
"""How many processes are read side by side."""
EVENTS_AT_ONCE = 20_000
"""Together they have no more events than this, unless it is the history of one process."""


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
