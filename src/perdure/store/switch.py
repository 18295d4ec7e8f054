"""The switch of automatic recovery: one row, by which a person pauses it for all workers on a database."""

from __future__ import annotations

from perdure.kernel.queue import SWITCH, Queue
from perdure.store.base import Store


async def switch(store: Store) -> Queue:
    """The switch as it is now: blocked, by whom and why, while automatic recovery is paused."""
    return next((row for row in await store.records(Queue) if row.name == SWITCH), Queue(SWITCH, 0))
