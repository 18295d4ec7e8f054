"""Health: whether the database and its workers are fit, as findings that pass, warn or are critical."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from perdure.client.queue_figures import QueueFigures, queue_figures
from perdure.clock import SECOND
from perdure.errors import StoreError
from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.clock import STEP, Clock
from perdure.kernel.names import LIBRARY
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX as OUTAGE
from perdure.kernel.outage import OutageState
from perdure.kernel.process import UNFINISHED, Status
from perdure.kernel.queue import SWITCH, Queue
from perdure.kernel.sweep_pass import SWEEPS, Passes, sweep_of
from perdure.kernel.worker import Backlog, WorkerRow, unhosted
from perdure.store.base import Search, Store

WAIT_WARN_SECONDS = 60.0
WAIT_CRITICAL_SECONDS = 600.0
"""A queued step that was due so long ago, and is held by no worker, is a warning, and is critical."""

SHOWN_BY = {
    Status.BROKEN: "`perdure failures` shows why they are broken",
    Status.HELD: "`perdure ps --status held` lists who is held, and `perdure explain` says why",
}


class HealthLevel(IntEnum):
    """How fit something is; the number is the exit code of `perdure health`."""

    PASSING = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        """The level as people read it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """What was found of one ``check``; ``text`` says it in a sentence, with what to do unless it passes."""

    check: str
    level: HealthLevel
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """All findings of one look; the worst of them is the level of the whole."""

    findings: tuple[HealthFinding, ...]

    @property
    def level(self) -> HealthLevel:
        """The worst level that was found."""
        return max((finding.level for finding in self.findings), default=HealthLevel.PASSING)


async def health(store: Store) -> Health:
    """Look at a database and its workers; a database that does not answer is a finding, no error."""
    try:
        now = await store.now()
        workers = await store.workers()
        unfinished = await store.count(Search(statuses=UNFINISHED, tasks=True))
        backlogs = await store.records(Backlog)
        queues, figures = await store.records(Queue), await queue_figures(store)
        (clock,) = await store.records(Clock)
        notes = await store.records(Note)
    except StoreError as error:
        return Health((HealthFinding("database", HealthLevel.CRITICAL, f"the database does not answer: {error}"),))
    return Health(
        (
            HealthFinding("database", HealthLevel.PASSING, "the database answers"),
            _workers(workers, now, sum(count for _, status, count in unfinished if status is Status.RUNNING)),
            _hosted(backlogs, workers),
            _queues(figures, _stopped(queues, notes, now)),
            _people(unfinished),
            _recovery(queues),
            _sweeps(notes, workers, now),
            _clock(clock),
        )
    )


def _workers(workers: Sequence[WorkerRow], now: int, running: int) -> HealthFinding:
    silent = [worker.name for worker in workers if worker.due_at is not None and worker.due_at < now]
    blocked = [worker.name for worker in workers if worker.hang is not None and worker.name not in silent]
    fit = len(workers) - len(silent)
    if not fit and running:
        text = f"no worker is alive, and {running:,} processes run. Start one: `perdure worker`"
        return HealthFinding("workers", HealthLevel.CRITICAL, text)
    if silent or blocked:
        whom = [*(f"{name} is silent" for name in silent), *(f"{name} is blocked by code" for name in blocked)]
        text = f"{fit} workers are alive; {_listed(whom)}. `perdure workers` shows them"
        return HealthFinding("workers", HealthLevel.WARNING, text)
    return HealthFinding("workers", HealthLevel.PASSING, f"{_many(fit, 'worker')} alive")


def _hosted(backlogs: Iterable[Backlog], workers: Sequence[WorkerRow]) -> HealthFinding:
    waiting = unhosted([one for one in backlogs if not one.kind.startswith(LIBRARY)], workers)
    if not waiting:
        return HealthFinding("hosted", HealthLevel.PASSING, "workers serve all that waits")
    whom = [f"{one.processes:,} of {_shown(one)}" for one in waiting]
    text = f"no living worker serves what waits: {_listed(whom)}. Start a worker with that code"
    return HealthFinding("hosted", HealthLevel.WARNING, text)


def _shown(backlog: Backlog) -> str:
    if is_task(backlog.kind):
        return f"queue {backlog.kind.removeprefix(QUEUE_MARK)}"
    return f"{backlog.kind}:{backlog.code}" if backlog.code else backlog.kind


def _stopped(queues: Iterable[Queue], notes: Iterable[Note], now: int) -> dict[str, str]:
    """The queues that are blocked or whose tasks an outage holds: by whom and why, and what a person can do."""
    stopped = {}
    for note in notes:
        if note.name.startswith(OUTAGE + QUEUE_MARK) and (state := note.read(OutageState)).allowance(now) is not None:
            why = f"an outage holds it ({state.circuit.reason})" if state.held else "an outage of it has just ended"
            stopped[note.name.removeprefix(OUTAGE + QUEUE_MARK)] = f"{why}: `perdure outage ls`"
    for one in queues:
        if one.blocked_at is not None:
            why = f" ({one.blocked_why})" if one.blocked_why else ""
            who = one.blocked_by or "an unnamed user"
            stopped[one.name] = f"{who} has blocked it{why}: `perdure queue unblock {one.name}`"
    return stopped


def _queues(figures: Iterable[QueueFigures], stopped: Mapping[str, str]) -> HealthFinding:
    behind = [one for one in figures if one.workers and one.oldest > WAIT_WARN_SECONDS]
    if not behind:
        return HealthFinding("queues", HealthLevel.PASSING, "no queue is behind")
    told, level = [], HealthLevel.WARNING
    late = [one for one in behind if one.name not in stopped]
    if late:
        level = HealthLevel.CRITICAL if max(one.oldest for one in late) > WAIT_CRITICAL_SECONDS else level
        whom = _listed([f"{one.name}, {one.oldest:,.0f} s" for one in late])
        told.append(f"queues are behind: {whom}. Start more workers, or raise limits: `perdure queue ls`")
    if len(late) < len(behind):
        waits = [f"{one.name}, {one.oldest:,.0f} s, {stopped[one.name]}" for one in behind if one.name in stopped]
        told.append(f"queues wait: {_listed(waits)}")
    return HealthFinding("queues", level, ". ".join(told))


def _people(unfinished: Iterable[tuple[str, Status, int]]) -> HealthFinding:
    stopped = dict.fromkeys(SHOWN_BY, 0)
    for _, status, count in unfinished:
        if status in stopped:
            stopped[status] += count
    if not any(stopped.values()):
        return HealthFinding("people", HealthLevel.PASSING, "no process waits for a person")
    said = " and ".join(f"{count:,} {status}" for status, count in stopped.items() if count)
    where = "; ".join(SHOWN_BY[status] for status, count in stopped.items() if count)
    text = f"processes wait for a person: {said}. {where}"
    return HealthFinding("people", HealthLevel.WARNING, text)


def _recovery(queues: Iterable[Queue]) -> HealthFinding:
    paused = next((one for one in queues if one.name == SWITCH and one.blocked_at is not None), None)
    if paused is None:
        return HealthFinding("recovery", HealthLevel.PASSING, "automatic recovery is on")
    why = f": {paused.blocked_why}" if paused.blocked_why else ""
    text = f"automatic recovery is paused by {paused.blocked_by or 'an unnamed user'}{why}. `perdure recovery resume`"
    return HealthFinding("recovery", HealthLevel.WARNING, text)


def _sweeps(notes: Iterable[Note], workers: Sequence[WorkerRow], now: int) -> HealthFinding:
    """Whether each sweep has passed lately, in whichever worker; the alert says it once, this as long as it is so."""
    known = {sweep: note.read(Passes) for note in notes if (sweep := sweep_of(note)) in SWEEPS}
    since = min((one.started_at for one in workers if one.due_at is not None and one.due_at >= now), default=None)
    ages = {sweep: (now - passes.at) / SECOND for sweep, passes in known.items() if passes.at}
    if since is None:
        last = f"; the last pass was {min(ages.values()):,.0f} s ago" if ages else ""
        return HealthFinding("sweeps", HealthLevel.PASSING, f"no worker is alive, so nothing is swept{last}")
    silent = [sweep for sweep, passes in known.items() if passes.silent(now, since, passes.patience, 0.0)]
    if silent:
        whom = [f"{one}, {ages[one]:,.0f} s ago" if one in ages else f"{one}, never" for one in silent]
        text = f"sweeps do not pass: {_listed(whom)}. What they would find stays stuck: `perdure recovery sweeps`"
        return HealthFinding("sweeps", HealthLevel.WARNING, text)
    if not ages:
        return HealthFinding("sweeps", HealthLevel.PASSING, "no sweep has passed yet")
    return HealthFinding("sweeps", HealthLevel.PASSING, f"every sweep has passed within {max(ages.values()):,.0f} s")


def _clock(clock: Clock) -> HealthFinding:
    if abs(clock.lead) <= STEP:
        return HealthFinding("clock", HealthLevel.PASSING, "the store's time is that of its machine")
    text = f"the store's time is {clock.lead / SECOND:,.0f} s ahead of its machine's clock, which was put back"
    return HealthFinding("clock", HealthLevel.WARNING, f"{text}. `perdure clock` shows it")


def _many(count: int, what: str) -> str:
    return f"{count} {what} is" if count == 1 else f"{count} {what}s are"


def _listed(texts: Sequence[str], most: int = 5) -> str:
    """The first few, and how many more there are: nothing is cut without being told."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
