"""Sweep: processes still owned by a worker that has ended. They are freed, and a death is counted with evidence."""

from __future__ import annotations

from perdure.kernel import transition
from perdure.kernel.names import id_text
from perdure.kernel.worker import Hang
from perdure.runtime.pages import Pages
from perdure.runtime.ward import Ward
from perdure.store.base import Overdue

SECONDS = 5.0
COUNTER = "orphans_freed"
OVERDUE = Overdue.ORPHANED
PAGES_AT_ONCE = 20
"""What one round of a sweep that has ended workers frees at most."""


async def sweep(ward: Ward) -> int:
    """Free up to one page of orphans; the fence makes two sweeps at once count each death once."""
    return await _freed(ward, ward.pages[OVERDUE])


async def free_all(ward: Ward) -> None:
    """Free what workers that have just been ended held, page after page; of very much, the sweep frees the rest."""
    pages = Pages(ward.store, OVERDUE)
    for _ in range(PAGES_AT_ONCE):
        if freed := await _freed(ward, pages):
            ward.telemetry.count(COUNTER, freed)
        if not pages.more:
            return


async def _freed(ward: Ward, pages: Pages) -> int:
    rows = await pages.next()
    if not rows or not await ward.may_recover("processes of ended workers"):
        pages.rewind()
        return 0
    ended = {worker.id: worker for worker in await ward.store.workers(ended=True)}
    commits = []
    for row in rows:
        owner = row.owner or b""
        worker = ended.get(owner)
        died = worker is not None and worker.died  # only an evidenced death counts (rule 13)
        name = f"{worker.name} {id_text(owner)}" if worker is not None else id_text(owner)
        hang = Hang.read(worker.hang) if worker is not None else None
        now, idle_at = ward.time.now(), ward.time.idle_at()
        commits.append(transition.orphaned(row, now=now, died=died, worker=name, idle_at=idle_at, hang=hang))
    # If we die here the rows stay orphaned: the next sweep, of whichever worker, finds them again.
    return len(await ward.write(commits))
