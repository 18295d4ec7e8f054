"""Sweep: processes that finished longer ago than the retention. They are removed; their keys are kept a while."""

from __future__ import annotations

from perdure import limits
from perdure.clock import microseconds
from perdure.runtime.ward import Ward

SECONDS = 30.0
COUNTER = "processes_pruned"


async def sweep(ward: Ward) -> int:
    """Remove up to one batch of finished processes with their events and messages."""
    pruned = await ward.store.prune(microseconds(ward.retention), microseconds(ward.key_retention), limits.SWEEP_ROWS)
    return pruned.processes
