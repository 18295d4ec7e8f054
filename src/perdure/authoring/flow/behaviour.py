"""The behaviour of a flow: all that its class declares, by name, and the row for each event in each state."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

from perdure.authoring.flow.action import Action
from perdure.authoring.flow.condition import Condition
from perdure.authoring.flow.event import FlowEvent, FlowInit
from perdure.authoring.flow.row import Row, Table
from perdure.authoring.flow.state import State, Stretch, Timed
from perdure.authoring.machine import Machine


class Behaviour:
    """What the class of a flow, and the flows that it includes, have declared.

    ``of`` gives the rows for a state and an event, in the order in which they are tried, ``done_in`` the actions
    and requests that are done in a state, as the rows into it want them.
    """

    def __init__(self, kind: type[Machine], revival_delay: float | None = None) -> None:
        self.kind = kind
        self.revival_delay = revival_delay
        self.named = {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}
        self.states = self._all(State)
        self.events = self._all(FlowEvent)
        self.actions = self._all(Action)
        self.stretches = self._all(Stretch)
        self.conditions = self._all(Condition)
        self.inits = self._all(FlowInit)
        self.rows = [row for table in self._all(Table).values() for row in table.rows]
        self.of: dict[tuple[str, str], list[Row]] = {}
        self.done_in: dict[str, dict[str, Action]] = {state: {} for state in self.states}

    def _all(self, kind: type[Any]) -> dict[str, Any]:
        return {name: value for name, value in self.named.items() if isinstance(value, kind)}

    @property
    def name(self) -> str:
        """The name of its class."""
        return self.kind.__qualname__

    @property
    def beginnings(self) -> list[Row]:
        """The rows for the beginning of a flow."""
        return [row for row in self.rows if row.begins]

    @property
    def open_states(self) -> list[State]:
        """The states in which something may still happen."""
        return [state for state in self.states.values() if not state.terminal]

    @property
    def timed_in(self) -> dict[str, dict[str, Timed]]:
        """What a policy may bound by its name: each open state, and the stretches that begin in it."""
        found: dict[str, dict[str, Timed]] = {state.name: {state.name: state} for state in self.open_states}
        for stretch in self.stretches.values():
            found.setdefault(stretch.start.name, {})[stretch.name] = stretch
        return found

    @property
    def by_state(self) -> bool:
        """Whether how the steps of its actions run depends on the state, also without policies."""
        actions = [action for done in self.done_in.values() for action in done.values()]
        return any(one.at_most_once or one.revival_delay is not None for one in actions)

    def states_of(self, row: Row) -> Iterable[State]:
        """The states in which a row counts, without regard to other rows."""
        return row.states or self.open_states

    def targets_of(self, row: Row) -> Iterable[State]:
        """The states in which the actions of a row are done."""
        return [row.target] if row.target is not None else self.states_of(row)

    def resolve(self) -> None:
        """Find the rows for each state and event, and what is done in each state.

        A row without a condition hides all that come after it.
        """
        others = [row for row in self.rows if not row.begins]
        for row in [*(row for row in others if row.states), *(row for row in others if not row.states)]:
            for state in self.states_of(row):
                for name in row.names:
                    found = self.of.setdefault((state.name, name), [])
                    if not found or found[-1].condition is not None:
                        found.append(row)
        for row in self.rows:
            for target in self.targets_of(row):
                self.done_in[target.name].update(
                    (one.name, one.done_in(target, self.revival_delay)) for one in row.actions
                )

    def ways(self, state: str) -> list[Row]:
        """The rows that count in a state, in the order of the table."""
        found = {id(row) for (where, _), rows in self.of.items() if where == state for row in rows}
        return [row for row in self.rows if id(row) in found]

    def reachable(self, start: str) -> set[str]:
        """The names of all states to which rows lead from a state, itself among them."""
        found, ahead = {start}, [start]
        while ahead:
            for row in self.ways(ahead.pop()):
                if row.target is not None and row.target.name not in found:
                    found.add(row.target.name)
                    ahead.append(row.target.name)
        return found

    def outcomes(self, action: Action) -> list[str]:
        """The names of the events to which an action may lead: by its answers, its errors and what it returns."""
        declared = [event.name for event in (*action.answers.events, *action.errors.values())]
        returned = [name for name in self.events if name in action.mentions]
        return list(dict.fromkeys([*declared, *returned, *([action.timed_out.name] if action.timeout else [])]))

    @property
    def functions(self) -> list[FunctionType]:
        """The functions of its events, actions and conditions: they are code of the flow."""
        bodies = [one.body for one in (*self.events.values(), *self.inits.values())]
        return bodies + [one.function for one in (*self.actions.values(), *self.conditions.values())]
