"""The next mover: who will move a process next, since when it waits, and until when; what ``show`` tells people."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from perdure.errors import PerdureError
from perdure.kernel import hosting, kind
from perdure.kernel.advice import advice
from perdure.kernel.breaker import BREAKER_MARK
from perdure.kernel.failure import Failure
from perdure.kernel.names import LIBRARY, id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.quarantine import company, is_suspect
from perdure.kernel.queue import QueueLoads
from perdure.kernel.stored import under_way
from perdure.kernel.undo import name_and_place
from perdure.kernel.worker import WorkerRow

NO_QUEUES = QueueLoads()
SCHEDULE = f"{LIBRARY}schedule"
"""The kind of schedules: what they wait for is their next instant."""
WAITS_FOR_NOTHING = "nothing that a step, a timer or a signal could bring"
"""What a process says that it waits for if its code awaits something that only its own code could bring."""


class NextMover(StrEnum):
    """Who moves a process next. Only a process that has ended has nobody."""

    WORKER = "worker"
    """A worker: it holds the process, or will take it, since it is due."""
    TIMER = "timer"
    """A time: a timer, the next attempt of a step, the time of a start."""
    MESSAGE = "message"
    """A signal or a call, from outside."""
    STEP = "step"
    """A queued step, which a worker of its queue runs."""
    CHILD = "child"
    """A child process, by its end."""
    PLACE = "place"
    """A place among the processes of its kind, which has limits."""
    BREAKER = "breaker"
    """A circuit breaker, once it lets attempts through."""
    OUTAGE = "outage"
    """The outage of its kind: a canary lets it go, or a person."""
    SCHEDULE = "schedule"
    """The next instant of a schedule."""
    OPERATION = "operation"
    """A running operation, which will command it; only where one process is explained."""
    PERSON = "person"
    """A person, by a command."""
    NOBODY = "nobody"
    """It has ended."""


class Mover(Struct, frozen=True):
    """Who moves a process next, why in words, since when and until when; microseconds by the store's clock."""

    who: NextMover
    text: str
    since: int
    until: int | None = None


Workers = Mapping[bytes, WorkerRow]
"""The workers that live and those that have ended lately, by their ids."""


def next_mover(process: Process, now: int, workers: Workers, queues: QueueLoads = NO_QUEUES) -> Mover:
    """Who moves the process next: by its row, by who lives, and of a task by its queue.

    ``since`` does not move when people are reminded of a process.
    """
    if process.final:
        return Mover(NextMover.NOBODY, f"it has {_ENDED[process.status]}", process.changed_at)
    if process.status in (Status.BROKEN, Status.HELD):
        failure = Failure("", "no reason was recorded") if process.error is None else Failure.shown(process.error)
        what = advice(process.status, failure.type)
        why = f"it is {process.status}: {failure.message.rstrip('.')}; {what}"
        return Mover(NextMover.PERSON, why, process.changed_at, process.due_at)
    if process.status is not Status.RUNNING:
        what = f"it is in a status that this Perdure does not know ({process.status}): a worker of a newer one does"
        return Mover(NextMover.WORKER, what, process.changed_at, process.due_at)
    if process.owner is not None:
        return _owned(process, now, workers)
    if process.reminder:
        return Mover(
            _reached_by(process), f"it waits for {_told(process) or 'a message'}", process.changed_at, process.due_at
        )
    due_at = process.due_at or now
    if barred := queues.barred(process):
        return Mover(NextMover.BREAKER, f"it waits, as {barred.text()}", barred.since, barred.until or due_at)
    if due_at <= now:
        return _due(process, now, due_at, workers, queues)
    waits_for = _told(process) or ("the time of its start" if process.opened_at is None else "its timer")
    return Mover(_reached_by(process), f"it waits for {waits_for}", process.changed_at, due_at)


def ending(process: Process) -> str:
    """How an ended process has ended, and by what: ``has been cancelled: terminated by Ann because: it hangs``."""
    failure = None if process.error is None else Failure.shown(process.error)
    return f"has {_ENDED[process.status]}" + (f": {failure.message}" if failure is not None else "")


def awaited_signals(process: Process) -> list[str]:
    """The names of the signals that a row says it waits for; where it waits for very many, only the first."""
    return [part.removeprefix("signal ") for part in _awaited(process) if part.startswith("signal ")]


def waits_for_nothing(process: Process) -> bool:
    """Whether nothing from outside can move its code on: it awaits an event or a queue of its own."""
    return process.reminder and process.awaiting == WAITS_FOR_NOTHING


def steps_under_way(process: Process) -> list[str]:
    """The names of the steps that run, as the last heartbeat has told; raises PerdureError if that cannot be read."""
    return list(dict.fromkeys((name_and_place(slot) or (slot,))[0] for slot in under_way(process.progress)))


def _awaited(process: Process) -> list[str]:
    return (process.awaiting or "").split(", ")


def _reached_by(process: Process) -> NextMover:
    """What brings on a process at rest, by what it says that it waits for. A time limit around it counts as its end."""
    parts = _awaited(process)
    if process.kind == SCHEDULE and not process.reminder:
        return NextMover.SCHEDULE
    if not process.reminder and any(part.startswith(("step ", "undo ")) for part in parts):
        return NextMover.TIMER
    for mark, who in _BROUGHT_BY.items():
        if any(part.startswith(mark) for part in parts):
            return who
    if waits_for_nothing(process):
        return NextMover.PERSON
    return NextMover.MESSAGE if process.reminder else NextMover.TIMER


def _told(process: Process) -> str:
    """What a row without an owner waits for; its steps wait for their next attempt."""
    told = ["its timer" if part == "timer" else part for part in _awaited(process) if not part.startswith(BREAKER_MARK)]
    return ", ".join(f"the next attempt of {part}" if part.startswith("step ") else part for part in told)


def _due(process: Process, now: int, due_at: int, workers: Workers, queues: QueueLoads) -> Mover:
    """Who takes a process that is due and that nobody holds."""
    if kept := queues.of(process, now):
        return Mover(NextMover(kept[0]), kept[1], due_at)
    if place := kind.waits(process, queues.queues, queues.loads, now):
        return Mover(NextMover.PLACE, place, due_at)
    found = hosting.hosting(process.kind, process.code, workers.values(), now)
    wanted = hosting.wanted(process.kind, process.code)
    if not found.alive:
        suspect = f"; it is {_suspected(process)}" if is_suspect(process) else ""
        return Mover(NextMover.WORKER, f"it is due, and no live worker {wanted}{suspect}", due_at)
    if (outage := queues.held(process, now)) is not None:
        text = f"it is due, and {outage.text(process.kind)}"
        return Mover(NextMover.OUTAGE, text, max(due_at, outage.since), outage.until)
    if is_suspect(process):
        return Mover(NextMover.WORKER, f"it is {_suspected(process)}, and waits for a place in quarantine", due_at)
    number = "one" if len(found.alive) == 1 else f"one of {len(found.alive):,}"
    return Mover(NextMover.WORKER, f"it is due and waits for {number} that {wanted}", due_at)


def _owned(process: Process, now: int, workers: Workers) -> Mover:
    owner = process.owner or b""
    worker = workers.get(owner)
    name = id_text(owner) if worker is None else worker.name
    gone = "" if worker is None else hosting.gone(worker, now)
    if gone or (process.due_at is not None and process.due_at <= now):
        what = gone or "let the lease lapse"
        text = f"its worker {name} {what}; the next worker takes it over"
        return Mover(NextMover.WORKER, text, process.changed_at, process.due_at)
    try:
        steps = ", ".join(steps_under_way(process))
    except PerdureError:
        steps = "steps that cannot be read"
    text = f"worker {name} holds it" + (f", running {steps}" if steps else "")
    if is_suspect(process):
        text += f"; it is {_suspected(process)}, and runs in quarantine"
    return Mover(NextMover.WORKER, text, process.changed_at, process.due_at)


def _suspected(process: Process) -> str:
    """Why it is a suspect, and with how many it may run: any process that the worker held may have killed it."""
    others = company(process) - 1
    how = f"with up to {others} others" if others else "alone"
    return f"a suspect (held at {process.deaths + max(process.alone_deaths, 0)} deaths of its worker; runs {how})"


_BROUGHT_BY = {"signal ": NextMover.MESSAGE, "task ": NextMover.STEP, "child ": NextMover.CHILD}
_ENDED = {Status.COMPLETED: "completed", Status.FAILED: "failed", Status.CANCELLED: "been cancelled"}
