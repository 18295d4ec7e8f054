"""A queue with limits: how much of it may run at once, how fast its tasks begin, and whether anything of it begins.

Only queues that somebody has limited or blocked have a row. What a claim may take of such a queue is decided here, on
what a store has read under the lock of that row; PostgreSQL does the same in SQL, and the conformance suite compares.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Queue(Struct, frozen=True, gc=False):
    """One row of the table ``queue``. Times and durations are microseconds by the store's clock.

    ``concurrency`` is the sum of the costs that run at most, over all workers; ``share_concurrency`` the same for each
    share (the fairness key of a task). ``rate`` is the sum of the costs that begin in ``per`` microseconds. None is no
    limit. ``blocked_at`` says since when nothing begins. ``who``, ``why`` and ``origin`` are of the last change.
    ``next_at`` and ``turn`` are kept by the store: the time at which all that has begun is paid for by the rate, and
    the share up to which the last claim has looked where there are more of them than one look can see.
    """

    name: str
    version: int = 1
    concurrency: int | None = None
    rate: int | None = None
    per: int = 1_000_000
    share_concurrency: int | None = None
    blocked_at: int | None = None
    blocked_by: str = ""
    blocked_why: str = ""
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""
    next_at: int = 0
    turn: str = ""


def changed(old: Queue | None, new: Queue) -> Queue:
    """The row after a change: what the store keeps in it stays, but no debt is longer than one period of the rate."""
    if old is None:
        return replace(new, next_at=0, turn="")
    return replace(new, next_at=min(old.next_at, new.changed_at + new.per), turn=old.turn)
