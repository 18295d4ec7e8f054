"""Sweep: processes that a fail-over has set back behind what this worker was told. They are held for a person.

Their steps may have had effects that the database knows nothing of: to go on by itself would be to do them again. No
claim is made here until they are held. What was lost altogether can only be told.
"""

from __future__ import annotations

from perdure import limits
from perdure.kernel.command import held
from perdure.kernel.finding import Finding
from perdure.kernel.process import Status
from perdure.kernel.transition import Sender
from perdure.runtime.ward import Ward
from perdure.store.base import Search
from perdure.store.lineage import lineage_of

SECONDS = 0.2
COUNTER = "processes_set_back"
LAW = "accepted_is_kept"


async def sweep(ward: Ward) -> int:
    """Hold up to one batch of them; those that do not run need no hold."""
    lineage = lineage_of(ward.store)
    if lineage is None or not lineage.set_back:
        return 0
    texts = dict(list(lineage.set_back.items())[: limits.SWEEP_ROWS])
    rows = await ward.store.search(Search(ids=tuple(texts), limit=limits.SWEEP_ROWS))
    running = [row for row in rows if row.status is Status.RUNNING]
    written = await ward.write(
        [
            held(row, Sender("perdure", texts[row.id], "supervisor"), now=ward.time.now(), idle_at=ward.time.idle_at())
            for row in running
        ]
    )
    # If we die here or before, those that are not held yet go on when their leases lapse, and nobody is told of them.
    done = texts.keys() - {row.id for row in running} | {commit.after.id for commit in written}
    for id in done:
        ward.taken(id)
        ward.found(Finding(LAW, id, texts[id]))
        lineage.handled(id)
    return len(done)
