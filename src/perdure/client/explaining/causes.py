"""The causes: what the evidence is held against, one after the other; the first that fits is why it does not move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from perdure import limits
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.client.explaining.evidence import HOSTS, Evidence, called
from perdure.client.explaining.wording import (
    alike_told,
    attempt_told,
    deaths_told,
    is_due,
    is_lost,
    owner_name,
    queue_told,
    recovery_paused,
    spent_told,
    steps_told,
    time_text,
)
from perdure.client.held import held_text
from perdure.clock import SECOND, microseconds
from perdure.kernel import hosting
from perdure.kernel.child import is_task
from perdure.kernel.clock import STEP
from perdure.kernel.diagnosis import NextMover, awaited_signals, waits_for_nothing
from perdure.kernel.event import EventType
from perdure.kernel.failure import OVER_DEADLINE, safe_text
from perdure.kernel.figures import figures_of
from perdure.kernel.kind import kind_of
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.kernel.quarantine import is_suspect

ALIKE = 5
"""So many processes with one trouble say that what they call is down, and not that one of them is wrong."""
TEXT_BYTES = 500
_BROKEN: Mapping[str, Diagnosis] = {
    "HistoryMisfit": Diagnosis.HISTORY_MISFIT,
    "UnreadablePayload": Diagnosis.PAYLOAD_UNREADABLE,
    "PayloadError": Diagnosis.PAYLOAD_UNREADABLE,
    "DamagedRecord": Diagnosis.RECORD_UNSOUND,
    "BadRecord": Diagnosis.RECORD_UNSOUND,
    "NewerRecord": Diagnosis.NEWER_RECORD,
    "Poison": Diagnosis.CRASHES_ITS_WORKER,
    "Hung": Diagnosis.HANGS_ITS_WORKER,
    OVER_DEADLINE: Diagnosis.OVER_DEADLINE,
}
"""What the class of a recorded error says by itself; every other error is one of the process's own code."""


class FoundCause(Struct, frozen=True):
    """A cause that fits: why in one sentence, since when, and what speaks for it."""

    cause: Diagnosis
    why: str
    since: int
    evidence: tuple[str, ...] = ()


CauseLook = Callable[[Evidence], FoundCause | None]


def reasons(evidence: Evidence) -> Iterator[FoundCause]:
    """All causes that fit, the decisive one first; there is always one."""
    for look in LOOKS:
        if (reason := look(evidence)) is not None:
            yield reason


# -- what has ended, and what waits for a person -----------------------------------------------------------------------


def _ended(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if row.status in (Status.COMPLETED, Status.CANCELLED):
        return FoundCause(Diagnosis.ENDED, evidence.mover.text, row.changed_at)
    return None


def _stopped_by_error(evidence: Evidence) -> FoundCause | None:
    """Failed or broken: the class of its error says why, or it is an error of its own code."""
    row, failure = evidence.row, evidence.failure
    if row.status not in (Status.FAILED, Status.BROKEN) or failure is None:
        return None
    cause = _BROKEN.get(failure.type) if row.status is Status.BROKEN or failure.type == OVER_DEADLINE else None
    what = f"it {'has failed' if row.final else 'is broken'}: {failure.type}: {failure.message}".rstrip(": ")
    why = safe_text(what, TEXT_BYTES)
    told = [*alike_told(evidence), *deaths_told(evidence)]
    if failure.trace and cause is Diagnosis.HANGS_ITS_WORKER:
        told.append(f"the stack at that time:\n{failure.trace.rstrip()}")
    if cause is None:
        cause = Diagnosis.DEPENDENCY_DOWN if evidence.alike >= ALIKE else Diagnosis.RETRIES_SPENT
        told[:0] = spent_told(evidence)
    return FoundCause(cause, why, row.changed_at, tuple(told))


def _held(evidence: Evidence) -> FoundCause | None:
    row, failure = evidence.row, evidence.failure
    if row.status is not Status.HELD:
        return None
    event = evidence.last(EventType.HELD)
    said = event.payload or b"" if event is not None else b""
    set_back = b'"who":"perdure"' in said and b'"origin":"supervisor"' in said
    what = "no reason was recorded" if failure is None else f"{failure.type}: {failure.message}"
    cause = Diagnosis.SET_BACK if set_back else Diagnosis.HELD
    return FoundCause(cause, safe_text(f"it is held: {what}", TEXT_BYTES), row.changed_at)


def _of_a_newer_perdure(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if isinstance(row.status, Status):
        return None
    return FoundCause(Diagnosis.NEWER_RECORD, evidence.mover.text, row.changed_at)


# -- what is wrong whoever holds it ------------------------------------------------------------------------------------


def _unsound(evidence: Evidence) -> FoundCause | None:
    if not evidence.unsound:
        return None
    told = tuple(f"law {one.law}: {one.text}" for one in evidence.unsound)
    return FoundCause(
        Diagnosis.RECORD_UNSOUND, f"its record breaks the law {evidence.unsound[0].law}", evidence.row.changed_at, told
    )


def _over_deadline(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if row.final or row.deadline is None or row.deadline > evidence.now:
        return None
    paused = recovery_paused(evidence)
    alive = sum(hosting.lives(worker, evidence.now) for worker in evidence.workers.values())
    told = paused or (f"{alive:,} live workers look for such processes" if alive else "no worker lives to end it")
    return FoundCause(
        Diagnosis.OVER_DEADLINE, "its deadline has passed, and it has not been ended yet", row.deadline, (told,)
    )


# -- what a worker holds -----------------------------------------------------------------------------------------------


def _hangs(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    hang = hosting.hang_of(evidence.owner, row.id)
    if hang is not None and evidence.owner is not None:
        why = f"{hang.where} blocks the event loop of worker {evidence.owner.name}"
        told = (f"it has blocked for {hang.seconds:.0f} s when that was written", f"the stack:\n{hang.stack.rstrip()}")
        return FoundCause(Diagnosis.HANGS_ITS_WORKER, why, evidence.now - microseconds(hang.seconds), told)
    hung = [(event, told["hung"]) for event, told in evidence.revivals() if isinstance(told.get("hung"), dict)]
    if row.status is not Status.RUNNING or not is_suspect(row) or not hung:
        return None
    last = hung[-1][1]
    why = f"{last.get('where')} has blocked the event loop of its worker {len(hung)} times"
    return FoundCause(
        Diagnosis.HANGS_ITS_WORKER, why, hung[0][0].at, (*deaths_told(evidence), f"the stack:\n{last.get('stack')}")
    )


def _worker_lost(evidence: Evidence) -> FoundCause | None:
    row, owner = evidence.row, evidence.owner
    if row.owner is None:
        return None
    name = id_text(row.owner) if owner is None else owner.name
    if not is_lost(evidence):
        return None
    gone = "" if owner is None else hosting.gone(owner, evidence.now)
    since = row.changed_at if owner is None else owner.ended_at or owner.due_at or row.changed_at
    why = f"its worker {name} {gone or 'has let the lease lapse'}"
    told = [what for what in [steps_told(evidence)] if what]
    if paused := recovery_paused(evidence):
        return FoundCause(Diagnosis.RECOVERY_PAUSED, f"{why}, and automatic recovery is paused", since, (paused, *told))
    if not evidence.hosting.alive:
        return None  # who takes it over is missing: that is the cause
    return FoundCause(Diagnosis.WORKER_LOST, why, since, tuple(told))


def _crashes(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if row.status is not Status.RUNNING or not is_suspect(row):
        return None
    deaths = row.deaths + max(row.alone_deaths, 0)
    first = evidence.revivals()
    since = first[0][0].at if first else row.changed_at
    why = f"workers died {deaths} times while they held it, so it runs in quarantine"
    return FoundCause(Diagnosis.CRASHES_ITS_WORKER, why, since, tuple(deaths_told(evidence)))


def _no_progress(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if row.owner is None or evidence.now - row.changed_at < microseconds(limits.NO_PROGRESS_SECONDS):
        return None
    why = f"worker {owner_name(evidence)} is alive and holds it, and nothing has been recorded for long"
    return FoundCause(
        Diagnosis.NO_PROGRESS, why, row.changed_at, tuple(what for what in [steps_told(evidence)] if what)
    )


def _moves(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if row.owner is not None:
        return FoundCause(Diagnosis.MOVES, evidence.mover.text, evidence.mover.since, tuple(attempt_told(evidence)))
    return None


# -- what nobody holds -------------------------------------------------------------------------------------------------


def _queue_keeps(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if not is_due(evidence) or (kept := evidence.queues.of(row, evidence.now)) is None:
        return None
    blocked = kept[0] == NextMover.PERSON
    cause = Diagnosis.QUEUE_BLOCKED if blocked else Diagnosis.QUEUE_FULL
    return FoundCause(cause, kept[1], row.due_at or evidence.now, tuple(queue_told(evidence)))


def _kind_keeps(evidence: Evidence) -> FoundCause | None:
    if evidence.mover.who is not NextMover.PLACE:
        return None
    row = next(row for row in evidence.queues.queues if kind_of(row) == evidence.row.kind)
    told = f"the limits of kind {evidence.row.kind} were set by {row.who or 'its workflow'}"
    return FoundCause(Diagnosis.KIND_FULL, evidence.mover.text, evidence.mover.since, (told,))


def _unhosted(evidence: Evidence) -> FoundCause | None:
    """Due, or taken from a lost worker, and no live worker hosts it."""
    row, found = evidence.row, evidence.hosting
    if not (is_lost(evidence) or is_due(evidence)) or found.alive:
        return None
    wanted = hosting.wanted(row.kind, row.code)
    told = [f"no worker is remembered that {wanted} (ended ones are, for a day)"]
    if found.last is not None:
        told = [f"the last worker that {wanted} was there until {time_text(found.last)}"]
    if found.others:
        told.append(
            f"live workers host {', '.join(repr(other) if other else 'no version' for other in sorted(found.others))}"
        )
    cause = Diagnosis.NO_HOST_OF_VERSION if found.others else Diagnosis.NO_HOST_OF_KIND
    if is_task(row.kind):
        cause = Diagnosis.QUEUE_NOT_POLLED
    return FoundCause(cause, f"no live worker {wanted}", found.last or row.due_at or evidence.now, tuple(told))


def _held_kind(evidence: Evidence) -> FoundCause | None:
    """It is due, and its kind has an outage, or had one until a moment ago."""
    mover, outage = evidence.mover, evidence.queues.held(evidence.row, evidence.now)
    if mover.who is not NextMover.OUTAGE or outage is None:
        return None
    told = (f"they have failed with fingerprint {outage.fingerprint}",) if outage.fingerprint else ()
    return FoundCause(Diagnosis.DEPENDENCY_DOWN if outage.held else Diagnosis.MOVES, mover.text, mover.since, told)


def _hosts_busy(evidence: Evidence) -> FoundCause | None:
    row, found = evidence.row, evidence.hosting
    due_at = row.due_at or evidence.now
    if not is_due(evidence) or evidence.now - due_at < microseconds(limits.BUSY_SECONDS):
        return None
    told = []
    for worker in found.alive[:HOSTS]:
        number = held_text(evidence.held.get(worker.id, 0), counted=not figures_of(worker.figures).at)
        told.append(f"worker {worker.name} holds {number}" + (", and its event loop is blocked" if worker.hang else ""))
    if len(found.alive) > HOSTS:
        told.append(f"{len(found.alive) - HOSTS:,} more hosts were not counted")
    number = "its only live host has" if len(found.alive) == 1 else f"none of its {len(found.alive):,} live hosts has"
    why = f"it is due, and {number} {'not ' if len(found.alive) == 1 else ''}taken it: all are busy"
    return FoundCause(Diagnosis.HOSTS_BUSY, why, due_at, tuple(told))


def _barred(evidence: Evidence) -> FoundCause | None:
    circuit = evidence.queues.barred(evidence.row)
    if circuit is None or evidence.row.owner is not None:
        return None
    return FoundCause(Diagnosis.DEPENDENCY_DOWN, circuit.text(), circuit.since, tuple(attempt_told(evidence)))


def _retries(evidence: Evidence) -> FoundCause | None:
    row, trying = evidence.row, evidence.trying
    waits = any(part.startswith(("step ", "undo ")) for part in (row.awaiting or "").split(", "))
    if row.owner is not None or row.reminder or trying is None or not waits or is_due(evidence):
        return None
    event, tried = trying
    down = evidence.alike >= ALIKE
    cause = Diagnosis.DEPENDENCY_DOWN if down else Diagnosis.RETRYING
    text = f"{tried.failure.type}: {tried.failure.message}".rstrip(": ")
    why = safe_text(f"step {event.name} has failed, and is tried again: {text}", TEXT_BYTES)
    return FoundCause(cause, why, tried.since, (*attempt_told(evidence), *alike_told(evidence)))


def _waits_for_nothing(evidence: Evidence) -> FoundCause | None:
    if not waits_for_nothing(evidence.row):
        return None
    told = "an event, a lock, a queue or a future of its own: only its own code can bring that, and all of it waits"
    return FoundCause(
        Diagnosis.WAITS_FOR_NOTHING, f"its code waits for {evidence.row.awaiting}", evidence.row.changed_at, (told,)
    )


def _waits_for_child(evidence: Evidence) -> FoundCause | None:
    row = evidence.row
    if row.owner is not None or evidence.mover.who not in (NextMover.CHILD, NextMover.STEP):
        return None
    told = [f"{evidence.open_children:,} children and queued steps of it have not ended"]
    if len(evidence.children) < evidence.open_children:
        told.append(f"{len(evidence.children)} of them were looked at: first what waits for a person, then the longest")
    told += [f"{called(one)} is {one.status}" for one in evidence.children]
    return FoundCause(Diagnosis.WAITS_FOR_CHILD, evidence.mover.text, row.changed_at, tuple(told))


def _clock_jumped(evidence: Evidence) -> FoundCause | None:
    row, clock = evidence.row, evidence.clock
    if row.owner is not None or row.reminder or is_due(evidence) or evidence.mover.who is not NextMover.TIMER:
        return None
    told = []
    if abs(clock.lead) > STEP:
        since = f" since {time_text(clock.lead_since)}" if clock.lead_since else ""
        told.append(f"the store's time is {clock.lead / SECOND:,.0f} s ahead of its machine's clock{since}")
    if row.changed_at > evidence.now + STEP:
        told.append(
            f"it was changed at {time_text(row.changed_at)}, which has not come yet: it is {time_text(evidence.now)}"
        )
    if not told:
        return None
    why = f"{evidence.mover.text}, and the clock of the store was put back or forward"
    return FoundCause(Diagnosis.CLOCK_JUMPED, why, clock.lead_since or row.changed_at, tuple(told))


def _waits(evidence: Evidence) -> FoundCause | None:
    """What is left: it rests for a message or a time, or a worker takes it in a moment."""
    row, mover = evidence.row, evidence.mover
    if mover.who is NextMover.MESSAGE:
        signals = ", ".join(awaited_signals(row))
        told = (
            (f"nobody has sent {signals} yet; {row.inbox - row.seen:,} other messages are unheard",) if signals else ()
        )
        return FoundCause(Diagnosis.WAITS_FOR_MESSAGE, mover.text, mover.since, told)
    due = is_due(evidence)
    return FoundCause(Diagnosis.MOVES if due else Diagnosis.WAITS_FOR_TIME, mover.text, mover.since)


LOOKS: tuple[CauseLook, ...] = (
    _ended, _stopped_by_error, _held, _of_a_newer_perdure, _unsound, _over_deadline, _hangs, _worker_lost, _queue_keeps,
    _kind_keeps, _unhosted, _held_kind, _crashes, _no_progress, _moves, _barred, _retries, _waits_for_nothing,
    _waits_for_child,
    _hosts_busy, _clock_jumped, _waits,
)  # fmt: skip
"""The order matters: what stands earlier explains what stands behind it."""
