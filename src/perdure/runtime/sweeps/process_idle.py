"""Sweep: processes whose reminder is due: idle, held or broken ones. They are checked and reminded again later.

No turn is run and no history is replayed: a million sleepers must cost nothing. The exception waits for a signal that
lies in its inbox: a worker of a former release does not look there for what a newer one has left. That one is due now.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from perdure.kernel import transition
from perdure.kernel.message import Waiting
from perdure.kernel.mover import awaited_signals
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.runtime.ward import Ward
from perdure.store.base import Overdue, Search

log = logging.getLogger("perdure")

SECONDS = 10.0
COUNTER = "processes_idle"
OVERDUE = Overdue.IDLE


async def sweep(ward: Ward) -> int:
    """Look at up to one batch of reminders and move each on; people are reminded of held and broken processes."""
    rows = await ward.pages[OVERDUE].next()
    overlooked = await _overlooked(ward, rows)
    now = ward.time.now()
    moved = await ward.write(
        [
            transition.due_now(row, now=now)
            if row.id in overlooked
            else transition.reminded(row, idle_at=ward.time.idle_at())
            for row in rows
        ]
    )
    if not moved:
        return 0
    # A reminder leaves no event: of two supervisors at once, only the times that they drew tell who was quicker.
    drawn = {commit.after.id: commit.after.due_at for commit in moved}
    found = await ward.store.search(Search(ids=tuple(drawn), limit=len(drawn)))
    ours = [row for row in found if row.due_at == drawn[row.id]]
    for row in ours:
        if row.status is not Status.RUNNING:
            log.warning("process %s (%s) is %s and waits for a person", id_text(row.id), row.kind, row.status)
    return len(ours)


async def _overlooked(ward: Ward, rows: Sequence[Process]) -> set[bytes]:
    """Those that wait for a signal of which one was heard, was not received, and lies in the store."""
    wants = [
        Waiting(row.id, name, 0, row.seen, row.inbox, 1)
        for row in rows
        if row.status is Status.RUNNING and row.inbox
        for name in awaited_signals(row)
    ]
    return {letter.process for letter in await ward.store.messages(waiting=wants)} if wants else set()
