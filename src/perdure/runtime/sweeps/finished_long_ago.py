"""Sweep: processes that finished longer ago than the retention. They are removed; their keys are kept a while.

So are former runs of processes that go on for ever: the present run and the one before it stay.
"""

from __future__ import annotations

from perdure import limits
from perdure.clock import microseconds
from perdure.runtime.sweeps.context import Ward

SECONDS = 30.0
COUNTER = "processes_pruned"


async def sweep(ward: Ward) -> int:
    """Remove up to one batch of finished processes with their events and messages, and of former runs."""
    retention, keys, most = microseconds(ward.retention), microseconds(ward.key_retention), limits.SWEEP_ROWS
    ward.pruned = await ward.store.prune(retention, keys, most, ward.pruned.behind)
    ward.telemetry.count("runs_pruned", ward.pruned.runs)
    return ward.pruned.processes


def more(ward: Ward) -> bool:
    """Whether the last round may have left some of what it found."""
    return bool(ward.pruned.runs) or ward.pruned.keys >= limits.SWEEP_ROWS
