"""Polling: which queues live workers serve, when one last did, and since when what waits there has been due."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.hosting import Hosting, hosting
from perdure.kernel.worker import Backlog, Pair
from perdure.limits import SWEEP_ROWS
from perdure.store.base import Overdue, Search, Store


class Poll(Struct, frozen=True):
    """Of one queue: how many live workers serve it, when one ``last`` did, since when the ``oldest`` step is due.

    ``unpolled`` says that steps wait there, without a label or with one, that no live worker serves.
    """

    servers: int = 0
    last: int | None = None
    oldest: int | None = None
    unpolled: bool = False


async def polled(store: Store) -> Mapping[str, Poll]:
    """What is known of each queue in which steps wait, and of those that live workers serve."""
    now, workers = await store.now(), await store.workers(ended=True)
    waiting = {(one.kind, one.code) for one in await store.records(Backlog) if is_task(one.kind)}
    oldest = await _oldest(store)
    polls: dict[str, Poll] = {}
    for kind, label in sorted(waiting | oldest.keys()):
        found = hosting(kind, label, workers, now)
        name = kind.removeprefix(QUEUE_MARK)
        known = polls.get(name, Poll())
        polls[name] = replace(
            known,
            servers=max(known.servers, len(found.alive)),
            last=max(known.last or 0, _last(found, now)) or None,
            oldest=min((at for at in (known.oldest, oldest.get((kind, label))) if at is not None), default=None),
            unpolled=known.unpolled or not found.alive,
        )
    return polls


async def _oldest(store: Store) -> Mapping[Pair, int]:
    """Since when the first step of each queue and label is due that nobody has taken for a minute."""
    found: dict[Pair, int] = {}
    search = Search(overdue=Overdue.UNHOSTED, limit=SWEEP_ROWS)
    while True:
        rows = await store.search(search)
        pairs = {(row.kind, row.code) for row in rows}
        for row in rows:
            if is_task(row.kind) and row.due_at is not None:
                found[row.kind, row.code] = min(found.get((row.kind, row.code), row.due_at), row.due_at)
        if len(pairs) < SWEEP_ROWS:
            return found
        search = replace(search, after_pair=max(pairs, key=lambda pair: (pair[0].encode(), pair[1].encode())))


def _last(found: Hosting, now: int) -> int:
    return now if found.alive else found.last or 0
