"""Sweep: processes that finished longer ago than the retention. They are removed; their keys are kept a while.

Former runs of processes that go on for ever are removed too: the present run and the one before it stay.
"""

from __future__ import annotations

from perdure import limits
from perdure.clock import microseconds
from perdure.runtime.sweeps.context import SweepContext

SECONDS = 30.0
COUNTER = "processes_pruned"


async def sweep(context: SweepContext) -> int:
    """Remove up to one batch of finished processes with their events and messages, and of former runs."""
    retention, keys, most = microseconds(context.retention), microseconds(context.key_retention), limits.SWEEP_ROWS
    context.pruned = await context.store.prune(retention, keys, most, context.pruned.behind)
    context.telemetry.count("runs_pruned", context.pruned.runs)
    return context.pruned.processes


def more(context: SweepContext) -> bool:
    """Whether the last round may have left some of what it found."""
    return bool(context.pruned.runs) or context.pruned.keys >= limits.SWEEP_ROWS
