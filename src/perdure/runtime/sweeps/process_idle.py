"""Sweep: processes whose reminder is due: idle, held or broken ones. They are checked and reminded again later.

No turn is run and no history is replayed: a million sleepers must cost nothing.
"""

from __future__ import annotations

from perdure.kernel import transition
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.logs import logger
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue, Search

log = logger("recovery")

SECONDS = 10.0
COUNTER = "processes_idle"
OVERDUE = Overdue.IDLE


async def sweep(context: SweepContext) -> int:
    """Look at up to one batch of reminders and move each on; people are reminded of held and broken processes."""
    rows = await context.pages[OVERDUE].next()
    moved = await context.write([transition.reminded(row, idle_at=context.time.idle_at()) for row in rows])
    if not moved:
        return 0
    # A reminder leaves no event: of two supervisors at once, only the times that they drew tell who was quicker.
    drawn = {commit.after.id: commit.after.due_at for commit in moved}
    found = await context.store.search(Search(ids=tuple(drawn), limit=len(drawn)))
    ours = [row for row in found if row.due_at == drawn[row.id]]
    for row in ours:
        if row.status is not Status.RUNNING:
            log.warning("process %s (%s) is %s and waits for a person", id_text(row.id), row.kind, row.status)
    return len(ours)
