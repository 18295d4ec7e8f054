"""Sweep: processes still owned by a worker that has ended. They are freed, and a death is counted with evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perdure.kernel import quarantine, transition
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.worker import Hang
from perdure.limits import QUARANTINE_PROCESSES
from perdure.runtime.quarantine import report
from perdure.runtime.sweeps.context import Pages, SweepContext
from perdure.store.base import Overdue

SECONDS = 5.0
COUNTER = "orphans_freed"
OVERDUE = Overdue.ORPHANED
PAGES_AT_ONCE = 20
"""The most pages that one round frees, of a sweep that has just ended workers."""


async def sweep(context: SweepContext) -> int:
    """Free up to one page of orphans; the fence makes two sweeps at once count each death once."""
    return await _freed(context, context.pages[OVERDUE], Counter())


async def free_all(context: SweepContext) -> None:
    """Free what just ended workers held, PAGES_AT_ONCE pages at most; later rounds of this sweep free the rest."""
    pages = Pages(context.store, OVERDUE)
    held: Counter[bytes] = Counter()
    for _ in range(PAGES_AT_ONCE):
        if freed := await _freed(context, pages, held):
            context.telemetry.count(COUNTER, freed)
        if not pages.more:
            return


async def _freed(context: SweepContext, pages: Pages, held: Counter[bytes]) -> int:
    """Free a page of orphans; ``held`` counts the suspects that each worker had on the pages before."""
    if not (rows := await context.revivable(pages, "processes of ended workers")):
        return 0
    ended = {worker.id: worker for worker in await context.store.workers(ids={row.owner for row in rows if row.owner})}
    held.update(_suspects(rows, left=pages.left))
    commits, by = [], transition.Rescuer(context.machine.name(), "owner gone")
    for row in rows:
        owner = row.owner or b""
        worker = ended.get(owner)
        died = worker is not None and worker.died  # only an evidenced death counts (rule 13)
        name = f"{worker.name} {id_text(owner)}" if worker is not None else id_text(owner)
        hang = Hang.read(worker.hang) if worker is not None else None
        now, idle_at, many = context.time.now(), context.time.idle_at(), held[owner]
        with context.each(row):
            commits.append(
                transition.orphaned(row, now=now, died=died, worker=name, idle_at=idle_at, held=many, hang=hang, by=by)
            )
    # If we die here the rows stay orphaned: the next sweep, of whichever worker, finds them again.
    freed = await context.write(commits)
    context.telemetry.revived(commit.after.kind for commit in freed)
    report(rows, freed, context.alerts)
    return len(freed)


def _suspects(rows: Sequence[Process], *, left: float) -> Counter[bytes]:
    """How many suspects each worker held, as far as one page tells; behind it there may be so many rows of its own."""
    most = 2 * QUARANTINE_PROCESSES
    return Counter({owner: max(many, int(min(many + left, most))) for owner, many in quarantine.held_by(rows).items()})
