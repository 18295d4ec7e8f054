"""The rows of a flow's table: in which state which event leads where, and what is done then."""

from __future__ import annotations

from copy import copy
from typing import Any

from perdure.authoring.flow.action import Action, FlowRequest
from perdure.authoring.flow.condition import Condition
from perdure.authoring.flow.event import FlowEvent, FlowInit, Trigger
from perdure.authoring.flow.state import State, TimedOut, check_state
from perdure.errors import DefinitionError


class Row:
    """One row: in one of these ``states`` (none given: in any) these ``triggers`` lead to ``target``, with ``actions``.

    With ``together`` all of the triggers must have come since the state was entered, else one is enough. Without a
    target the flow stays in its state. With a ``condition`` it counts only if that holds when the event comes.
    """

    def __init__(
        self,
        triggers: tuple[Any, ...],
        states: tuple[State, ...],
        *,
        together: bool = False,
        condition: Condition | None = None,
    ) -> None:
        if not triggers:
            raise DefinitionError("a row of a flow has no event. Write flow.on(event, in_=state).")
        for one in triggers:
            if not isinstance(one, FlowEvent | FlowInit | TimedOut):
                raise DefinitionError(
                    f"a row of a flow names {one!r:.100}, which is no event. Name a method marked @flow.event or "
                    "@flow.init, or the timed_out of a state, a stretch, an action or a request."
                )
        for state in states:
            check_state(state, "in_")
        if condition is not None and not isinstance(condition, Condition):
            raise DefinitionError(
                f"a row of a flow has when={condition!r:.100}. Name a method of its class marked @flow.condition."
            )
        self.triggers, self.states, self.together, self.condition = triggers, states, together, condition
        self.target: State | None = None
        self.actions: tuple[Action, ...] = ()
        self.stopped: tuple[FlowRequest, ...] = ()

    def to(self, state: State) -> Row:
        """The same row, which leads to a state. The state in which the flow is already is left and entered again."""
        check_state(state, f"{self}.to()")
        return self._with(target=state)

    def do(self, *actions: Action) -> Row:
        """The same row with actions and requests: they are done in their order, in the state that it leads to."""
        for one in actions:
            if not isinstance(one, Action):
                raise DefinitionError(
                    f"{self}.do() names {one!r:.100}. Name methods marked @flow.action or @flow.request."
                )
        return self._with(actions=self.actions + actions)

    def stop(self, *requests: FlowRequest) -> Row:
        """The same row, which gives up requests: they are not sent again, and their answers are late."""
        for one in requests:
            if not isinstance(one, FlowRequest):
                raise DefinitionError(f"{self}.stop() names {one!r:.100}. Name methods marked @flow.request.")
        return self._with(stopped=self.stopped + requests)

    def _with(self, **changes: Any) -> Row:
        same = copy(self)
        vars(same).update(changes)
        return same

    @property
    def begins(self) -> bool:
        """Whether it says how a flow begins."""
        return any(isinstance(one, FlowInit) for one in self.triggers)

    @property
    def names(self) -> list[str]:
        """The names of its events."""
        return [one.name for one in self.triggers]

    @property
    def label(self) -> str:
        """Its events in words, with its condition."""
        events = (" and " if self.together else " or ").join(self.names)
        return events if self.condition is None else f"{events} [{self.condition.name}]"

    def __repr__(self) -> str:
        where = ", ".join(one.name for one in self.states)
        return f"row {self.label!r}" + (f" in {where}" if where else "")


class Table:
    """The rows of a flow, in the order in which people read them."""

    def __init__(self, rows: tuple[Row, ...]) -> None:
        for one in rows:
            if not isinstance(one, Row):
                raise DefinitionError(f"flow.table() holds {one!r:.100}. Begin each row with flow.on(event, ...).")
        self.rows = rows


def table(*rows: Row) -> Table:
    """The behaviour of a flow, as an attribute of its class: its rows. Raises DefinitionError."""
    return Table(rows)


def on(event: Trigger, *, in_: State | tuple[State, ...] = (), when: Condition | None = None) -> Row:
    """A row: when this event comes in that state. ``in_`` may be several states; without it, it is any state.

    Of several rows for one event in one state the first one counts whose condition ``when`` holds; the last one needs
    none. Rows that name the state stand above those for any state. The row of the method marked ``@flow.init`` says
    how a flow begins.
    """
    return Row((event,), _states(in_), condition=when)


def any_of(*events: Trigger, in_: State | tuple[State, ...] = (), when: Condition | None = None) -> Row:
    """A row: when one of these events comes in that state, and the condition ``when`` holds."""
    return Row(events, _states(in_), condition=when)


def all_of(*events: Trigger, in_: State | tuple[State, ...] = ()) -> Row:
    """A row: when all of these events have come, in any order, since the flow entered that state."""
    return Row(events, _states(in_), together=True)


def _states(in_: Any) -> tuple[State, ...]:
    return in_ if isinstance(in_, tuple) else (in_,)
