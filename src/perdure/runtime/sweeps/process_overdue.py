"""Sweep: processes past their deadline. They end as failed, without a turn, whoever holds them."""

from __future__ import annotations

from perdure import limits
from perdure.kernel import transition
from perdure.runtime.ward import Ward
from perdure.store.base import Overdue

SECONDS = 1.0
COUNTER = "processes_expired"


async def sweep(ward: Ward) -> int:
    """End up to one batch of overdue processes."""
    commits = []
    for row in await ward.store.overdue(Overdue.EXPIRED, limits.SWEEP_ROWS):
        # Its error says what should have been undone; whatever happens meanwhile has a newer version, and wins.
        history = await ward.store.history(row.id, row.run, limit=row.events) if row.events else ()
        commits.append(transition.expired(row, history, now=ward.time.now()))
    return len(await ward.write(commits))
