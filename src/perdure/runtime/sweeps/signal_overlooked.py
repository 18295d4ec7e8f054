"""Sweep: processes at rest that wait for a signal which lies in their inbox. This worker takes them.

A worker of the first release does not read letters that a newer one has heard and left (``message.waits``), and lets
such a process rest. If the process were made due, that worker would most likely take it again: so each newer worker
claims those that it hosts before they are due. The sweep reads all inboxes while a worker of the first release lives,
once more after the last of them has gone, and once in every new supervisor. Otherwise it costs nothing.
"""

from __future__ import annotations

from perdure.errors import StoreUnavailable
from perdure.kernel import transition
from perdure.kernel.diagnosis import awaited_signals
from perdure.kernel.message import LettersWanted
from perdure.kernel.process import Process
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.worker import Offer
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue

SECONDS = 2.0
COUNTER = "letters_overlooked"
OVERDUE = Overdue.INBOX


class Look:
    """Whether the sweep must read all inboxes once more."""

    def __init__(self) -> None:
        self.owed = True


async def sweep(context: SweepContext, look: Look) -> int:
    """Read one page of inboxes; a process that is claimed then hears the letters in its inbox."""
    older = any(not Offer.decode(worker.hosts).schema for worker in await context.workers(SECONDS))
    look.owed |= older
    if not context.pages[OVERDUE].more:
        if not look.owed:
            return 0
        look.owed = older
    try:
        return await _page(context)
    except StoreUnavailable:
        look.owed = True
        raise


async def _page(context: SweepContext) -> int:
    rows = [row for row in await context.pages[OVERDUE].next() if (row.kind, row.code) in context.registry.hosted]
    found: list[Process] = []
    for row in rows:
        with context.each(row, StoreUnavailable):
            wants = [LettersWanted(row.id, name, 0, row.seen, row.inbox, 1) for name in awaited_signals(row)]
            if wants and await context.store.messages(waiting=wants):
                found.append(row)
    context.events.undue(row.id for row in found if not is_suspect(row))
    now = context.time.now()
    await context.write([transition.due_now(row, now=now) for row in found if is_suspect(row)])  # not for this worker
    return len(found)
