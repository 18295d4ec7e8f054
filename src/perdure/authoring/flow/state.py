"""The states of a flow, the times that it may spend in them, and the events that come when such a time is over."""

from __future__ import annotations

from typing import Any

from perdure.authoring.definitions import seconds
from perdure.clock import Duration, in_seconds
from perdure.errors import DefinitionError
from perdure.kernel.policy import check_revival_delay


class Timed:
    """A part of a flow that may have a timeout, in seconds: a state, a stretch, an action or a request."""

    name = ""
    timeout: float | None = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def timed_out(self) -> TimedOut:
        """The event that comes when its time is over, for a row of the table: ``flow.on(reserve.timed_out)``."""
        return TimedOut(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()} {self.name or '(without a name)'}"


class TimedOut:
    """The event that a flow gives itself when the time ``of`` a state, a stretch, an action or a request is over."""

    def __init__(self, of: Timed) -> None:
        self.of = of

    @property
    def name(self) -> str:
        """Its name in the table and in what the flow shows of itself."""
        return f"{self.of.name}.timed_out"

    def __repr__(self) -> str:
        return self.name


class State(Timed):
    """A state of a flow, as an attribute of its class: ``reserving = flow.State(timeout=60)``.

    After ``timeout`` seconds in it comes the event ``reserving.timed_out``. ``phase`` is the state as the business sees
    it, and several states may share one: processes are found by it, see :class:`Flow`. It is ``"PENDING"`` if nothing
    else is said. A ``terminal`` state ends the process: as completed, with ``result``, the name of a field, as its
    result (default: the name of the state), or as failed.

    With ``at_most_once`` the steps of its actions and requests never run twice, not even after a crash: if nobody knows
    whether one was done, its action gets a StepOutcomeUnknown, and unless that is one of its ``errors`` the flow is
    broken until a person decides; a request is not sent again, and waits for its answer or timeout. With
    ``passivating`` the flow leaves the worker's memory as soon as the actions of that state are done; whatever comes
    for it loads it again.

    A step of the state that is under way when its worker is lost begins again ``revival_delay`` seconds later, unless
    the flow has left the state by then. None is at once, or what the flow says; with 0 it does not begin by itself: the
    flow is broken, and says so, until a person has it retried. Raises DefinitionError.
    """

    def __init__(
        self,
        *,
        timeout: Duration | None = None,
        phase: str = "",
        terminal: bool = False,
        failed: bool = False,
        result: str = "",
        at_most_once: bool = False,
        passivating: bool = False,
        revival_delay: Duration | None = None,
    ) -> None:
        self.timeout = seconds("timeout", timeout, "a state")
        for name, value in (("phase", phase), ("result", result)):
            if not isinstance(value, str):
                raise DefinitionError(f"a state has {name}={value!r:.100}. Give a text.")
        if not terminal and (failed or result):
            raise DefinitionError(
                "a state has failed or result and is not terminal. Add terminal=True, or leave it out."
            )
        if terminal and timeout is not None:
            raise DefinitionError(
                "a terminal state has a timeout, but the flow has ended there. Leave one of them out."
            )
        for name, flag in (("at_most_once", at_most_once), ("passivating", passivating)):
            if not isinstance(flag, bool):
                raise DefinitionError(f"a state has {name}={flag!r:.100}. Give True or False.")
        if terminal and passivating:
            raise DefinitionError("a terminal state is passivating, but a flow that has ended leaves memory anyway.")
        self.terminal, self.failed, self.result = terminal, failed, result
        self.at_most_once, self.passivating = at_most_once, passivating
        self.revival_delay: float | None = in_seconds(revival_delay)
        check_revival_delay(self.revival_delay, "a state")
        self.phase = phase or ("PENDING" if not terminal else "FAILED" if failed else "COMPLETED")


class Stretch(Timed):
    """The way between two states, which must be gone within a time (a *processing timeout*).

    ``settlement = flow.Stretch(clearing, settled, timeout=30)``: when 30 seconds have passed since the flow entered
    ``clearing``, and it has not entered ``settled``, the event ``settlement.timed_out`` comes, once. Entering the first
    state again meanwhile does not begin the time anew. Raises DefinitionError.
    """

    def __init__(self, start: State, end: State, *, timeout: Duration) -> None:
        for one in (start, end):
            check_state(one, "a stretch")
        self.start, self.end = start, end
        self.timeout = seconds("timeout", timeout, "a stretch")


def check_state(value: Any, where: str) -> None:
    """Raise DefinitionError if a value is no state."""
    if not isinstance(value, State):
        raise DefinitionError(f"{where} names {value!r:.100}, which is no state. Give a flow.State of this class.")
