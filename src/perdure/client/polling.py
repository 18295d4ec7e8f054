"""Polling: the queues in which steps wait that no live worker serves."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.hosting import hosting
from perdure.kernel.worker import Backlog, Pair
from perdure.limits import SWEEP_ROWS
from perdure.store.base import Overdue, Search, Store


async def unpolled_queues(store: Store) -> set[str]:
    """The names of queues in which steps wait, without a label or with one, that no live worker serves."""
    now, workers = await store.now(), await store.workers()
    waiting = {(one.kind, one.code) for one in await store.records(Backlog)} | await _due_for_long(store)
    return {
        kind.removeprefix(QUEUE_MARK)
        for kind, label in waiting
        if is_task(kind) and not hosting(kind, label, workers, now).alive
    }


async def _due_for_long(store: Store) -> set[Pair]:
    """The queues and labels, and the workflows and versions, of which one is due and nobody has taken it for a minute.

    These are all; what the store counts of backlogs is only of what it has seen waiting.
    """
    found: set[Pair] = set()
    search = Search(overdue=Overdue.UNHOSTED, limit=SWEEP_ROWS)
    while True:
        page = await store.search(search)
        pairs = {(row.kind, row.code) for row in page}
        found |= pairs
        if len(pairs) < SWEEP_ROWS and not page.left:
            return found
        search = replace(search, after_pair=max(pairs, key=lambda pair: (pair[0].encode(), pair[1].encode())))
