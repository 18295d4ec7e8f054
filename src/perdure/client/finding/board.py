"""The board: how many unfinished processes there are, by who moves them next, and how many nobody looks at in time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from perdure.client.finding.finder import Finder
from perdure.client.view import instant
from perdure.kernel.diagnosis import NextMover
from perdure.store.base import Search, Store


@dataclass(frozen=True, slots=True)
class BoardLine:
    """Unfinished processes of one kind whose next mover is of one sort.

    ``overdue`` of them should have been looked at already, the ``latest`` of these since then (None if there is none).
    ``since`` is when the one that waits longest began to wait.
    """

    kind: str
    mover: NextMover
    count: int
    overdue: int
    latest: datetime | None
    since: datetime | None


async def board(store: Store, search: Search, where: str) -> list[BoardLine]:
    """All unfinished processes that fit, by kind and next mover, in the order of the kinds. Raises InvalidInput."""
    counts: Counter[tuple[str, NextMover]] = Counter()
    overdue: Counter[tuple[str, NextMover]] = Counter()
    latest: dict[tuple[str, NextMover], int] = {}
    since: dict[tuple[str, NextMover], int] = {}
    async for page in Finder(store, search, where, asks=True).every():
        for one in page:
            place = str(one.row.kind), one.mover.who
            counts[place] += 1
            since[place] = min(since.get(place, one.mover.since), one.mover.since)
            if one.overdue is not None:
                overdue[place] += 1
                latest[place] = min(latest.get(place, one.now), one.now - one.overdue)
    return [
        BoardLine(*place, counts[place], overdue[place], instant(latest.get(place)), instant(since[place]))
        for place in sorted(counts)
    ]
