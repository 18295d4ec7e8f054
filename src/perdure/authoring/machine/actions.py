"""The actions of a machine: what it does next when a method has ended. A method takes one of them, or none."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from perdure.clock import Duration, in_seconds
from perdure.errors import InvalidInput, WorkflowMisuse
from perdure.kernel.plain import shown
from perdure.limits import FARTHEST_SECONDS
from perdure.turns.current import turn_for

if TYPE_CHECKING:
    from perdure.authoring.machine.life import Life


class Refusal(Exception):
    """Raised by a call's method to refuse the call: its caller gets CallRefused, and the fields are as they were."""


def schedule(when: Duration | datetime) -> None:
    """Let the machine's ``@timer`` method run after so many seconds (or a timedelta), or at a time with a zone.

    It replaces the time that was set before. A call or signal that comes earlier leaves it as it is, unless its own
    method takes an action. Raises InvalidInput, WorkflowMisuse.
    """
    life = _acting("schedule")
    now = turn_for("machine.schedule").now
    life.act("schedule", due=_instant(when, now, "schedule"))


def run_now() -> None:
    """Let the machine's ``@timer`` method run at once: after the calls and signals that wait already.

    Raises WorkflowMisuse.
    """
    life = _acting("run_now")
    life.act("run_now", due=turn_for("machine.run_now").now)


def suspend() -> None:
    """Let the machine wait for calls and signals alone: a time that was set counts no more. Raises WorkflowMisuse."""
    _acting("suspend").act("suspend", due=None)


def complete(result: Any = None) -> None:
    """End the machine when this method has ended: its process has completed with this result. Raises WorkflowMisuse.

    Calls that wait for it get CallUnanswered.
    """
    _acting("complete").act("complete", end=True, result=result)


def fail(error: Exception) -> None:
    """End the machine when this method has ended: its process has failed with this error. Raises WorkflowMisuse.

    Calls that wait for it get CallUnanswered. A person may have it retried: then it waits for calls and signals again.
    """
    if not isinstance(error, Exception):
        raise InvalidInput(f"machine.fail({error!r:.100}) needs an error, like ValueError('there is no such account').")
    _acting("fail").act("fail", end=True, error=error)


def remove() -> None:
    """Remove the machine when this method has ended: its fields, its history and its key. Raises WorkflowMisuse.

    Its caller gets the answer first; the machine hears nothing more, and some seconds later nothing of it is left.
    Calls that wait for it get CallUnanswered. The next start with its key begins another machine.
    """
    life = _acting("remove")
    life.act("remove", due=turn_for("machine.remove").now, removal=True, closed=True)


def schedule_removal(when: Duration | datetime) -> None:
    """Remove the machine after so many seconds (or a timedelta), or at a time with a zone, as :func:`remove` does.

    It takes the place of the timer: a later action of a method replaces or cancels it. Raises InvalidInput,
    WorkflowMisuse.
    """
    life = _acting("schedule_removal")
    now = turn_for("machine.schedule_removal").now
    life.act("schedule_removal", due=_instant(when, now, "schedule_removal"), removal=True)


def _acting(verb: str) -> Life:
    life = turn_for(f"machine.{verb}").machine
    if life is None or not life.acting:
        raise WorkflowMisuse(f"machine.{verb}() is for the methods of a machine, and none is running here.")
    return cast("Life", life)


def _instant(when: Any, now: int, verb: str) -> int:
    """A time in microseconds since 1970; raises InvalidInput."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidInput(f"machine.{verb}({when!r}) has no time zone. Give a time with tzinfo, like UTC.")
        return round(when.timestamp() * 1_000_000)
    seconds = in_seconds(when)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= FARTHEST_SECONDS:
        raise InvalidInput(f"machine.{verb}({shown(when)}): give seconds or a timedelta, 0 or more, or a datetime.")
    return now + round(seconds * 1_000_000)
