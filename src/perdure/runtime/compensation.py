"""Compensation in a process in memory: what the history must know of it, and undos that gave up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.task import QueueWork, task_of
from perdure.errors import HistoryMisfit
from perdure.kernel.commit import Outcome
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure, safe_text
from perdure.kernel.process import Status
from perdure.kernel.undo import listed, undoes
from perdure.turns.saga import UndoAsk

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.turns.ask import Ask
    from perdure.turns.loop import TurnLoop

_PART_BYTES = limits.ERROR_TEXT_BYTES // 4


def note_owed(instance: Instance, history: Iterable[Event] = ()) -> None:
    """Record newly owed undos in the turn that asks for their steps, so that a command can list them."""
    saga = instance.loop.saga
    if saga is None or not saga.fresh:
        return
    known = {(event.name, event.place) for event in history if event.type is EventType.UNDO_OWED}
    for owed in saga.take_fresh():
        name, place = owed.slot
        if (name, place) not in known:
            instance.note(EventType.UNDO_OWED, instance.at, None, name=name, place=place)


def check(loop: TurnLoop, history: Iterable[Event]) -> None:
    """Raise HistoryMisfit if the history owes an undo and the code does not: it would never run (rule 19)."""
    owed = set() if loop.saga is None else {one.slot for one in loop.saga.fresh}
    for event in history:
        if event.type is EventType.UNDO_OWED and (event.name, event.place) not in owed:
            raise HistoryMisfit(
                f"that {event.name!r} is owed for step {undoes(event.place)}",
                "asked for no such step, or for one without that undo",
            )


def compensated(loop: TurnLoop, failure: Failure) -> Failure:
    """The failure with which a process ends, which says what was undone because of it."""
    if loop.saga is None or not loop.saga.undone:
        return failure
    return replace(failure, undone=listed(loop.saga.undone))


def cancelled(loop: TurnLoop) -> bytes | None:
    """What a cancelled process records as its error: nothing, unless something was undone."""
    failure = compensated(loop, Failure(type="Cancelled", message="it was asked to end"))
    return failure.encode() if failure.undone else None


def key_undone(instance: Instance, ask: Ask[Any]) -> str | None:
    """The idempotency key of the step that an undo takes back; None for a step that is no undo."""
    if isinstance(instance.workflow, QueueWork):
        return task_of(instance.process.input).undoes
    return instance.idempotency_key(ask.owed.ask) if type(ask) is UndoAsk else None


def gave_up(instance: Instance, undo: UndoAsk, failure: Failure, now: int) -> None:
    """An undo has no attempt left. Its failure is no answer to the code: a person lets it be tried again."""
    undo.spent = failure
    instance.reach(max(instance.at, now))


def broken(instance: Instance) -> Outcome | None:
    """The process as broken, with all that is known, if an undo gave up; all that ran beside it has ended by now."""
    loop = instance.loop
    spent = next((ask for ask in loop.open.values() if type(ask) is UndoAsk and ask.spent is not None), None)
    if spent is None or spent.spent is None or loop.saga is None:
        return None
    failure, saga = spent.spent, spent.owed.saga
    left = listed(saga.unpaid())
    undone = listed(loop.saga.undone)
    cause = "it was asked to end"
    if saga.cause is not None and not isinstance(saga.cause, asyncio.CancelledError):
        failed = Failure.of(saga.cause)
        cause = f"of {failed.type}: {safe_text(failed.message, _PART_BYTES)}"
    times = "once" if failure.attempts == 1 else f"{failure.attempts} times"
    text = (
        f"{spent.name!r} could not undo {spent.owed.step}, tried {times}: "
        f"{failure.type}: {safe_text(failure.message, _PART_BYTES)}. "
        f"It was undoing because {cause}. "
        f"Undone: {', '.join(undone) or 'nothing'}. Left: {', '.join(left)}."
    )
    message = safe_text(text, limits.ERROR_TEXT_BYTES)
    error = replace(failure, type="UndoFailed", message=message, undone=undone, owed=left)
    return Outcome(Status.BROKEN, state=loop.state, error=error.encode())
