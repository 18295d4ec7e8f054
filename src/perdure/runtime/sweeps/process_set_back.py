"""Sweep: processes that a fail-over or a restored backup has set back behind what this worker was told: they are held.

Their steps may have had effects that the database does not know, and would run again if the processes just went on.
This worker claims nothing until they are held. A process that was lost altogether can only be reported; the sweep looks
for it until claims go on, since a start whose answer was lost is sent again, and its steps may have run already.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure import limits
from perdure.kernel.command import held
from perdure.kernel.process import Status
from perdure.kernel.soundness import Finding
from perdure.kernel.transition import Sender
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Search
from perdure.store.failover import Lineage

SECONDS = 1.0
COUNTER = "processes_set_back"
LAW = "accepted_is_kept"


async def sweep(context: SweepContext) -> int:
    """Hold all of them, batch by batch; those that do not run need no hold."""
    lineage = context.store.backend.failover()
    if not lineage.set_back:
        return 0
    ids = list(lineage.set_back)
    batches = [ids[place : place + limits.SWEEP_ROWS] for place in range(0, len(ids), limits.SWEEP_ROWS)]
    return sum([await _held(context, lineage, batch) for batch in batches])


async def _held(context: SweepContext, lineage: Lineage, ids: Sequence[bytes]) -> int:
    # Those that this worker holds are dropped first. What is on its way already, of this worker and of others that had
    # claimed them since, carries tokens that the row has lost: the hold draws one above all of them, or it would fit.
    for id in ids:
        context.events.taken(id, None)
    regressions = {id: lineage.set_back[id] for id in ids}
    settling = lineage.settles_for > 0
    rows = {row.id: row for row in await context.store.search(Search(ids=tuple(ids), limit=len(ids)))}
    running = [row for row in rows.values() if row.status is Status.RUNNING]
    now, idle_at = context.time.now(), context.time.idle_at()
    holds = []
    for row in running:
        with context.each(row):
            text, token = regressions[row.id]
            sender, above = Sender("perdure", text, "supervisor"), token + limits.LINEAGE_TOKENS
            holds.append(held(row, sender, now=now, idle_at=idle_at, above=above))
    written = await context.write(holds)
    # If we die here or before, those that are not held yet go on when their leases lapse, and nobody is told of them.
    still = {row.id for row in running} - {commit.after.id for commit in written}
    now_stored = rows | {commit.after.id: commit.after for commit in written}
    done = [id for id in ids if id not in still and (id in rows or not settling)]
    for id in done:
        context.events.found(Finding(LAW, id, regressions[id].text))
        lineage.handled(id, regressions[id], now_stored.get(id))
    return len(done)
