"""Sweep: processes due for a minute that no live worker takes. They are only reported, never started a second time.

Only if a rule for their kind says so, those of a version that no live worker hosts begin again with another one.

Those that no live worker hosts are told from those whose hosts are all busy, whose queue is full or blocked, or whose
kind has no place for them, in words and by counters. The first round reports at once how many processes there are, due
or not, for whose code no live worker exists. It also tells of the names that workflows of several modules share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from perdure import limits
from perdure.errors import HistoryMisfit, PerdureError, StoreUnavailable
from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.hosting import lives, start_command
from perdure.kernel.kind import waits
from perdure.kernel.missing import begun_again
from perdure.kernel.process import Process
from perdure.kernel.queue import Load, Queue, QueueLoads
from perdure.kernel.soundness import Finding
from perdure.kernel.worker import COUNTED, Backlog, Offer, Pair, WorkerRow, mistakable, namesakes, unhosted
from perdure.logs import logger
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue, Store

SECONDS = 30.0
COUNTER = "processes_unhosted"
OVERDUE = Overdue.UNHOSTED


class Known:
    """The processes found in the last pass over all pages, which were reported, and those found in this pass.

    ``begun`` says that the first round has reported all that is left without a worker.
    """

    def __init__(self) -> None:
        self.begun = False
        self.ids: frozenset[bytes] = frozenset()
        self.now: frozenset[bytes] = frozenset()

    def fresh(self, rows: Sequence[Process], *, last: bool) -> list[Process]:
        """Those of a page that were not found before."""
        fresh = [row for row in rows if row.id not in self.ids and row.id not in self.now]
        self.now |= {row.id for row in rows}
        if last:
            self.ids, self.now = self.now, frozenset()
        return fresh


async def sweep(context: SweepContext, known: Known) -> int:
    """Report kinds and versions that wait for a worker, when more of their processes do; count each process once.

    What live workers host is counted as overload, and is not in the answer.
    """
    if not known.begun:
        await _begin(context.store)
        known.begun = True
    rows = await context.pages[OVERDUE].next()
    fresh = known.fresh(rows, last=not context.pages[OVERDUE].more)
    waiting: dict[tuple[str, str], bytes] = {}
    counts: dict[tuple[str, str], int] = {}
    kept = await _kept(context, fresh)
    hosted = await _hosted(context) if fresh else {}
    for row in fresh:
        waiting.setdefault((row.kind, row.code), row.id)
    for row in rows:
        counts[row.kind, row.code] = counts.get((row.kind, row.code), 0) + 1
    part = max(limits.SWEEP_ROWS // max(len(counts), 1), 1)  # a page has no more than that of each kind and version
    for (kind, code), first in waiting.items():
        number = counts[kind, code]
        some = f"at least {number}" if number >= part or rows.left else str(number)
        text = _told(kind, code, some, kept.get(kind), hosted.get((kind, code), 0))
        context.events.found(Finding("nobody_hosts", first, text))
    overload = sum((row.kind, row.code) in hosted or row.kind in kept for row in fresh)
    context.telemetry.count("processes_overloaded", overload)
    unpolled = {row.kind for row in fresh if is_task(row.kind) and (row.kind, row.code) not in hosted} - kept.keys()
    context.telemetry.count("queues_unpolled", len(unpolled))
    await _begin_again(context, rows)
    return len(fresh) - overload


async def _begin_again(context: SweepContext, rows: Sequence[Process]) -> None:
    """Let those of a version that no live worker hosts begin again, if a rule says so, with that of new processes."""
    kinds, rules = context.registry.kinds, context.missing
    ruled = [row for row in rows if row.kind in kinds and row.kind in rules and rules[row.kind].versions]
    hosted = await _hosted(context) if ruled else {}
    left = [row for row in ruled if (row.kind, row.code) not in hosted]
    if not left or not await context.may_recover("processes of versions that no live worker hosts", len(left)):
        return
    commits = []
    for row in left:
        with context.each(row, StoreUnavailable):
            version, now = kinds[row.kind].version, context.time.now()
            history = await context.store.history(row.id, row.run, limit=row.events) if row.events else ()
            misfit = HistoryMisfit(f"version {row.code!r}, which no live worker hosts", f"has version {version!r}")
            commit = begun_again(replace(row, code=version), history, misfit, rules[row.kind], now=now)
            commits += [] if commit is None else [commit]
    context.telemetry.count("processes_begun_again", len(await context.write(commits)))


async def _hosted(context: SweepContext) -> Counter[Pair]:
    """How many live workers host each kind and version."""
    now = await context.store.now()
    alive = [worker for worker in await context.workers() if lives(worker, now)]
    return Counter(pair for worker in alive for pair in Offer.decode(worker.hosts).hosted)


async def _kept(context: SweepContext, rows: Sequence[Process]) -> dict[str, str]:
    """The queues and kinds whose limits keep what is due from being taken, each with the reason."""
    if not rows:
        return {}
    rules, now = tuple(await context.store.records(Queue)), context.time.now()
    loads = tuple(await context.store.records(Load)) if rules else ()
    queues = QueueLoads(rules, loads)
    told = {row.kind: (queues.of(row, now) or ("", waits(row, rules, loads, now)))[1] for row in reversed(rows)}
    return {kind: why for kind, why in told.items() if why is not None}


def _told(kind: str, code: str, count: str, kept: str | None, hosts: int) -> str:
    """What is due, which worker it waits for, and what to do; ``hosts`` live workers host it."""
    busy = f"the {hosts:,} live workers that {'serve' if is_task(kind) else 'host'} it are all busy; start one more"
    if kept is not None and not is_task(kind):
        each = kept.removeprefix("it ")
        return f"{count} processes of kind {kind!r} have been due for over a minute: each {each}; see `perdure kind ls`"
    if kept is not None:
        return f"{count} steps have been due for over a minute: {kept}; `perdure queue ls` shows its limits"
    if is_task(kind):
        queue = kind.removeprefix(QUEUE_MARK)
        label = f" on a worker with the label {code!r}" if code else ""
        some = f"{count} steps have been due in queue {queue!r}{label} for over a minute"
        if hosts:
            return f"{some}: {busy}, or give them more room"
        return f"{some}, and no live worker serves it; start one that does: {start_command(kind, code)}"
    version = f" version {code!r}" if code else ""
    some = f"{count} processes of kind {kind!r}{version} have been due for over a minute"
    return f"{some}: {busy}" if hosts else f"{some}, and no live worker hosts it; start a worker that hosts it"


log = logger("recovery")


async def _begin(store: Store) -> None:
    """Log a line for each kind and version that no live worker offers, and for each name that workflows share."""
    try:
        backlogs = await store.records(Backlog)
        workers = await store.workers()
        for backlog in unhosted(backlogs, workers):
            log.warning("%s", told(backlog))
        _tell_of_names(workers)
    except StoreUnavailable:
        raise
    except PerdureError as error:  # an unreadable record there must not keep the sweep from what is due
        log.warning("it is not known whether processes wait for code that no live worker offers: %s", error)


def _tell_of_names(workers: Sequence[WorkerRow]) -> None:
    """Log a line for each name that functions of several modules share, by default or because it was given to them."""
    for kind, origins in namesakes(workers).items():
        log.warning(
            "workers host several workflows called %r: %s. Each runs its own processes, but the name alone starts "
            "none of them. Give each a name of its own with @workflow(name=...)",
            kind,
            ", ".join(origins),
        )
    for (kind, version), origins in mistakable(workers).items():
        log.warning(
            "workers host functions of different modules as one workflow, %r%s: %s. Each of these workers also runs "
            "processes that the code of another one has begun. If a function was moved and its code is the same, that "
            "is no problem. If the code differs, such processes become broken or go on with the wrong code: give one "
            "function another name with @workflow(name=...), or stop the workers with the old module",
            kind,
            f" version {version!r}" if version else "",
            ", ".join(origins),
        )


def told(backlog: Backlog) -> str:
    """What is left, which worker it waits for, and what to do."""
    number = f"at least {COUNTED:,}" if backlog.processes >= COUNTED else str(backlog.processes)
    if is_task(backlog.kind):
        queue = backlog.kind.removeprefix(QUEUE_MARK)
        label = f" on a worker with the label {backlog.code!r}" if backlog.code else ""
        return f"{number} steps wait in queue {queue!r}{label}, which no live worker serves; start one that does"
    version = f" version {backlog.code!r}" if backlog.code else ""
    return (
        f"{number} unfinished processes of kind {backlog.kind!r}{version} are left, and no live worker offers "
        f"that code; start one that does, or see `perdure ps --kind {backlog.kind}`"
    )
