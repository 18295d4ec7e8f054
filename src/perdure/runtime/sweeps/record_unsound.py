"""Sweep: records that break a law. The constraints should make this impossible; this checks whether they do.

A few unfinished processes per round are read with their histories, in the order of their ids, round and round.
"""

from __future__ import annotations

from perdure.errors import StoreUnavailable
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.soundness import unsound
from perdure.kernel.stored import first_trouble
from perdure.runtime.sweep_round import saw
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Search

SECONDS = 60.0
COUNTER = "records_unsound"
ROWS = 20
OPEN = tuple(status for status in Status if status not in FINAL)


class Position:
    """Where the last round ended."""

    def __init__(self) -> None:
        self.before: bytes | None = None


async def sweep(context: SweepContext, place: Position) -> int:
    """Check the next few unfinished processes; each finding is reported and counted."""
    rows = await context.store.search(Search(statuses=OPEN, before_id=place.before, limit=ROWS, tasks=True))
    saw(len(rows))
    place.before = rows[-1].id if len(rows) == ROWS else None
    found = 0
    for row in rows:
        with context.each(row, StoreUnavailable):
            found += await _looked_at(context, row)
    return found


async def _looked_at(context: SweepContext, row: Process) -> int:
    events = await context.store.history(row.id, row.run, limit=row.events)
    messages = await context.store.messages([(row.id, 0)])
    fresh = await context.store.search(Search(ids=(row.id,)))
    if not fresh or fresh[0].version != row.version or fresh[0].inbox != row.inbox:
        return 0  # it moved while we read: the next round will see it
    if first_trouble(event.payload for event in events):
        return 0  # the worker that claims it finds that too, and parks it
    findings = unsound(row, events, messages, context.time.now())
    for finding in findings:
        context.events.found(finding)
    return len(findings)
