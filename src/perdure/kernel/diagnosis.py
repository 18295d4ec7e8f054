"""The next mover: who will move a process next, since when it waits, and until when; what ``show`` tells people."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perdure.errors import PerdureError
from perdure.kernel.advice import advice
from perdure.kernel.breaker import BREAKER_MARK
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.quarantine import company, is_suspect
from perdure.kernel.queue import QueueLoads
from perdure.kernel.stored import under_way
from perdure.kernel.undo import name_and_place

NO_QUEUES = QueueLoads()


class Mover(Struct, frozen=True):
    """``who`` is one of worker, timer, message, person, nobody; times are microseconds by the store's clock."""

    who: str
    text: str
    since: int
    until: int | None = None


def next_mover(process: Process, now: int, workers: Mapping[bytes, str], queues: QueueLoads = NO_QUEUES) -> Mover:
    """Why the process does not move, or what moves it: derived from the row, and of a task from its queue."""
    if process.final:
        return Mover("nobody", f"it has {_ENDED[process.status]}", process.changed_at)
    if process.status in (Status.BROKEN, Status.HELD):
        failure = Failure("", "no reason was recorded") if process.error is None else Failure.shown(process.error)
        what = advice(process.status, failure.type)
        why = f"it is {process.status}: {failure.message.rstrip('.')}; {what}"
        return Mover("person", why, process.changed_at, process.due_at)
    if process.status is not Status.RUNNING:
        what = f"it is in a status that this Perdure does not know ({process.status}): a newer one does"
        return Mover("nobody", what, process.changed_at)
    if process.owner is not None:
        return _owned(process, now, workers)
    if process.reminder:
        return Mover("message", f"it waits for {_told(process) or 'a message'}", process.changed_at, process.due_at)
    due_at = process.due_at or now
    if barred := queues.barred(process):
        return Mover("timer", f"it waits, as {barred.text()}", barred.since, barred.until or due_at)
    if due_at <= now:
        if kept := queues.of(process, now):
            return Mover(*kept, due_at)
        if is_suspect(process):
            return Mover("worker", f"it is {_suspected(process)}, and waits for a place in quarantine", due_at)
        return Mover("worker", f"it is due and waits for a worker that hosts {process.kind!r}", due_at)
    who = "message" if "signal " in (process.awaiting or "") else "timer"
    waits_for = _told(process) or ("the time of its start" if process.opened_at is None else "its timer")
    return Mover(who, f"it waits for {waits_for}", process.changed_at, due_at)


def awaited_signals(process: Process) -> list[str]:
    """The names of the signals that a row says it waits for; where it waits for very many, only the first."""
    parts = (process.awaiting or "").split(", ")
    return [part.removeprefix("signal ") for part in parts if part.startswith("signal ")]


def _told(process: Process) -> str:
    """What a row without an owner waits for; its steps wait for their next attempt."""
    parts = (process.awaiting or "").split(", ")
    told = ["its timer" if part == "timer" else part for part in parts if not part.startswith(BREAKER_MARK)]
    return ", ".join(f"the next attempt of {part}" if part.startswith("step ") else part for part in told)


def _owned(process: Process, now: int, workers: Mapping[bytes, str]) -> Mover:
    owner = process.owner or b""
    name = workers.get(owner, id_text(owner))
    if process.due_at is not None and process.due_at <= now:
        text = f"its worker {name} let the lease lapse; the next worker takes it over"
        return Mover("worker", text, process.changed_at, process.due_at)
    try:
        steps = ", ".join(dict.fromkeys(_name(slot) for slot in under_way(process.progress)))
    except PerdureError:
        steps = "steps that cannot be read"
    text = f"worker {name} holds it" + (f", running {steps}" if steps else "")
    if is_suspect(process):
        text += f"; it is {_suspected(process)}, and runs in quarantine"
    return Mover("worker", text, process.changed_at, process.due_at)


def _suspected(process: Process) -> str:
    """Why it is a suspect, and with how many it may run: any process that the worker held may have killed it."""
    others = company(process) - 1
    how = f"with up to {others} others" if others else "alone"
    return f"a suspect (held at {process.deaths + max(process.alone_deaths, 0)} deaths of its worker; runs {how})"


def _name(slot: str) -> str:
    return (name_and_place(slot) or (slot,))[0]


_ENDED = {Status.COMPLETED: "completed", Status.FAILED: "failed", Status.CANCELLED: "been cancelled"}
