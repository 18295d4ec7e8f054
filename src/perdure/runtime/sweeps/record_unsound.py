"""Sweep: records that break a law. The constraints should make this impossible; this checks whether they do.

All processes are examined by all checks, kind by kind in turn, round and round, at a rate that all workers share: a row
of the store says how far they are (``kernel/audit.py``). Nothing is mended here: a person orders that. If the row shows
that the database goes on from another state than the one seen last, everything is examined at once.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.check.examination import examine, keep, tidy
from perdure.clock import SECOND, microseconds
from perdure.kernel.audit import ALL, Audit, ended, moved, opened, taken
from perdure.kernel.check import CHECKS
from perdure.kernel.names import id_text
from perdure.kernel.soundness import Finding
from perdure.runtime.sweep_round import saw
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Search

SECONDS = 60.0
"""The time to the first look, at most. Later looks are as :class:`Position` says."""
AGAIN_SECONDS = 2.0
COUNTER = "records_unsound"
LONGEST_WAIT_SECONDS = 10.0


class Position:
    """When this worker looks again whether a page is due: in ``wait`` seconds.

    ``unanswered`` is the row by which it has noted that the database was restored, with the id of the check run, until
    it knows whether that was written.
    """

    def __init__(self) -> None:
        self.wait = LONGEST_WAIT_SECONDS
        self.unanswered: tuple[Audit, str] | None = None


async def sweep(context: SweepContext, place: Position) -> int:
    """Examine the next page if it is due, and no other worker is at it; the answer is how many faults are new."""
    place.wait = LONGEST_WAIT_SECONDS
    [row] = await context.store.records(Audit)
    now = context.time.now()
    if row.line != row.line_now:
        row = await _restored(context, place, row)
    else:
        _tell(context, place, row, answered=False)
    if not context.check_rate:
        return 0
    if not row.is_due(now):
        place.wait = _until(row, now)
        return 0
    mine = taken(row, id_text(context.incarnation.id), now)
    if (await context.store.records(Audit, [mine]))[0] != mine:
        place.wait = AGAIN_SECONDS
        return 0  # another worker was quicker
    # If we die here the row falls due again, and another worker examines the same page.
    started = context.time.monotonic()
    after, new = await _page(context, mine, started)
    await context.store.records(Audit, [after])
    place.wait = _until(after, context.time.now())
    return new


async def _page(context: SweepContext, row: Audit, started: float) -> tuple[Audit, int]:
    """The row behind the next page, and how many faults on it are new."""
    store = context.store
    if not row.kinds:
        counts = await store.count(Search(tasks=True))
        row = opened(row, {kind for kind, _, _ in counts}, context.time.now())
        await tidy(store, context.time.now())
        if not counts:
            return replace(ended(row, context.time.now()), version=row.version + 1), 0
    kind, behind = row.kinds[0]
    rows = await store.search(
        Search(
            kind=None if kind == ALL else kind,
            tasks=True,
            before_id=bytes.fromhex(behind) or None,
            limit=limits.CHECK_ROWS,
        )
    )
    saw(len(rows))
    page = await examine(store, rows, CHECKS)
    now = context.time.now()
    new = await keep(store, page, CHECKS, now, tell=partial(_found, context))
    took = context.time.monotonic() - started
    wait = microseconds(max(len(rows) / context.check_rate, took * limits.CHECK_PAUSE_SECONDS))
    before = rows[-1].id if len(rows) == limits.CHECK_ROWS else None
    after = moved(row, before, checked=len(page.examined), found=len(page.findings), now=now, wait=wait)
    return after, new


def _found(context: SweepContext, finding: Finding) -> None:
    told = f"process {id_text(finding.subject)}: {finding.text}; `perdure check findings` lists all"
    context.events.found(Finding(finding.law, finding.subject, told))


async def _restored(context: SweepContext, place: Position, row: Audit) -> Audit:
    """Have everything examined at once, and tell the operator, once; the row as it is then."""
    run = await context.engine.checks.start(
        who="perdure", why="the database goes on from another state", key=f"restored {row.line_now}"
    )
    mine = id_text(context.incarnation.id)  # so that of two workers one finds its own row written
    known = replace(row, version=row.version + 1, worker=mine, line=row.line_now)
    place.unanswered = known, run.id
    [after] = await context.store.records(Audit, [known])
    # If we die here nobody is told, but for what the run finds, and by what holds the processes that were set back.
    _tell(context, place, after, answered=True)
    return after


def _tell(context: SweepContext, place: Position, row: Audit, *, answered: bool) -> None:
    """Tell the operator of what was noted here, unless another worker does.

    Without an answer, a row that has been written over since then may have been ours: better twice than never.
    """
    if place.unanswered is None:
        return
    (known, run), place.unanswered = place.unanswered, None
    if row == known or (row.version > known.version and not answered):
        context.alerts.restored(known.line, run)


def _until(row: Audit, now: int) -> float:
    """Seconds until the row is due, but so few that it is noticed soon if the database was set back."""
    return min(max((row.due_at - now) / SECOND, 0.05), LONGEST_WAIT_SECONDS)
