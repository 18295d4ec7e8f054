"""Sweep: processes still owned by a worker that has ended. They are freed, and a death is counted with evidence."""

from __future__ import annotations

from perdure import limits
from perdure.kernel import transition
from perdure.kernel.names import id_text
from perdure.runtime.ward import Ward
from perdure.store.base import Overdue, Search

SECONDS = 5.0
COUNTER = "orphans_freed"


async def sweep(ward: Ward) -> int:
    """Free up to one batch of orphans; the fence makes two sweeps at once count each death once."""
    rows = await ward.store.search(Search(overdue=Overdue.ORPHANED, limit=limits.SWEEP_ROWS))
    if not rows or not await ward.may_recover("processes of ended workers"):
        return 0
    ended = {worker.id: worker for worker in await ward.store.workers(ended=True)}
    commits = []
    for row in rows:
        owner = row.owner or b""
        worker = ended.get(owner)
        died = worker is not None and worker.died  # only an evidenced death counts (rule 13)
        name = f"{worker.name} {id_text(owner)}" if worker is not None else id_text(owner)
        idle_at = ward.time.idle_at()
        commits.append(transition.orphaned(row, now=ward.time.now(), died=died, worker=name, idle_at=idle_at))
    # If we die here the rows stay orphaned: the next sweep, of whichever worker, finds them again.
    return len(await ward.write(commits))


async def free_all(ward: Ward) -> None:
    """Free every orphan at once, batch after batch: their worker has just been ended."""
    freed = await sweep(ward)
    while freed:
        ward.telemetry.count(COUNTER, freed)
        freed = await sweep(ward)
