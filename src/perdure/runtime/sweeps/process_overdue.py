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
    rows = await ward.store.overdue(Overdue.EXPIRED, limits.SWEEP_ROWS)
    return len(await ward.write([transition.expired(row, now=ward.time.now()) for row in rows]))
