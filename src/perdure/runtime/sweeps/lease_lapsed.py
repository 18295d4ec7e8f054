"""Sweep: leases that lapsed although the owner still beats, of kinds that no claim took over within a while.

A worker that hosts the kind takes such a row by an ordinary claim; this sweep frees those that nobody here hosts,
so that the row stops naming an owner who does nothing.
"""

from __future__ import annotations

from perdure.kernel import transition
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue

SECONDS = 5.0
COUNTER = "leases_lapsed"
OVERDUE = Overdue.LAPSED


async def sweep(context: SweepContext) -> int:
    """Free lapsed rows of kinds not hosted here; the late owner is fenced off by the new token."""
    hosted = set(context.registry.hosted)
    now = context.time.now()
    commits, by = [], transition.Rescuer(context.machine.name(), "lease lapsed")
    for row in await context.revivable(context.pages[OVERDUE], "lapsed leases", hosted):
        with context.each(row):
            idle_at = context.time.idle_at()
            commits.append(transition.orphaned(row, now=now, died=False, worker="lease lapsed", idle_at=idle_at, by=by))
    freed = await context.write(commits)
    context.telemetry.revived(commit.after.kind for commit in freed)
    return len(freed)
