"""The check of a flow when its class is defined: what cannot be meant is refused, with the place and what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from perdure.authoring.flow.action import FlowRequest
from perdure.authoring.flow.answer import CODES
from perdure.authoring.flow.behaviour import Behaviour
from perdure.authoring.flow.condition import Condition, types_of
from perdure.authoring.flow.event import FlowEvent
from perdure.authoring.flow.position import ABORTED
from perdure.authoring.flow.row import Row
from perdure.authoring.flow.state import TimedOut
from perdure.errors import DefinitionError, PayloadError
from perdure.kernel import payload


def check(behaviour: Behaviour, reserved: Mapping[str, Any], fields: Collection[str]) -> None:
    """Resolve the behaviour of a flow, and raise DefinitionError for the first thing in it that cannot be meant.

    ``reserved`` is what every flow has, by name, ``fields`` are the names of its own fields.
    """
    _check_names(behaviour, reserved, fields)
    for row in behaviour.rows:
        _check_row(behaviour, row)
    _check_beginning(behaviour)
    _check_doubles(behaviour)
    _check_settings(behaviour)
    _check_errors(behaviour)
    behaviour.resolve()
    _check_ways(behaviour)
    _check_use(behaviour)
    for row in behaviour.rows:
        _check_outcomes(behaviour, row)


def _wrong(behaviour: Behaviour, what: str) -> DefinitionError:
    return DefinitionError(f"{behaviour.name}: {what}")


def _check_names(behaviour: Behaviour, reserved: Mapping[str, Any], fields: Collection[str]) -> None:
    for name, value in reserved.items():
        if behaviour.named.get(name) is not value or name in fields:
            raise _wrong(behaviour, f"{name!r} is what every flow has. Choose another name.")
    if ABORTED in behaviour.states:
        raise _wrong(behaviour, f"the state {ABORTED!r} is what abort() leads to. Give the state another name.")
    for state in behaviour.states.values():
        if state.result and state.result not in fields:
            raise _wrong(behaviour, f"{state!r} has result={state.result!r}, and there is no such field. Declare it.")


def _check_row(behaviour: Behaviour, row: Row) -> None:
    """Everything that a row names belongs to this class, and fits there."""
    for trigger in row.triggers:
        part = trigger.of if isinstance(trigger, TimedOut) else trigger
        _check_own(behaviour, row, part)
        if isinstance(trigger, TimedOut) and trigger.of.timeout is None:
            raise _wrong(behaviour, f"{row} waits for {trigger}, and {part!r} has no timeout. Give it timeout=seconds.")
    optional = [part for part in (row.target, row.condition) if part is not None]
    for part in (*row.states, *optional, *row.actions, *row.stopped):
        _check_own(behaviour, row, part)
    if row.condition is not None:
        for trigger in row.triggers:
            unfit = row.condition.unfit(trigger if isinstance(trigger, FlowEvent) else None)
            if unfit:
                raise _wrong(behaviour, f"{row}: its condition {unfit}. Name parameters as the event does.")
    if row.together and len(set(row.names)) < 2:
        raise _wrong(behaviour, f"{row} is flow.all_of() of one event. Write flow.on(), or name the others.")
    for state in row.states:
        if state.terminal:
            raise _wrong(behaviour, f"{row} begins in a terminal state, where the flow has ended. Remove the row.")
    if row.target is None and not row.actions and not row.stopped and row.triggers[0].__class__ is TimedOut:
        raise _wrong(behaviour, f"{row} does nothing. Add .to(state) or .do(action).")


def _check_own(behaviour: Behaviour, row: Row, part: Any) -> None:
    name = part.name
    own = behaviour.named.get(name)
    if own is part or (
        isinstance(part, FlowRequest) and isinstance(own, FlowRequest) and own.function is part.function
    ):
        return
    raise _wrong(behaviour, f"{row} names {part!r}, which is not declared in this class. Declare it above the table.")


def _check_beginning(behaviour: Behaviour) -> None:
    names = " and ".join(behaviour.inits)
    if len(behaviour.inits) != 1:
        raise _wrong(
            behaviour, f"it has {names or 'no method'} marked @flow.init. Mark one method, with which it begins."
        )
    if len(behaviour.beginnings) != 1:
        raise _wrong(
            behaviour,
            f"it has {len(behaviour.beginnings)} rows for its beginning. Write one: flow.on({names}).to(state).",
        )
    (row,) = behaviour.beginnings
    if row.states or row.target is None or len(row.triggers) > 1 or row.condition is not None:
        raise _wrong(behaviour, f"a flow begins in one state, whatever was before. Write flow.on({names}).to(state).")


def _check_doubles(behaviour: Behaviour) -> None:
    """Of the rows for one event in one state, or in any state, each may count: only the last one has no condition."""
    seen: dict[tuple[str, str], list[Condition | None]] = {}
    for row in behaviour.rows:
        for state in [one.name for one in row.states] or ["any state"]:
            for name in row.names:
                before = seen.setdefault((state, name), [])
                if None in before or (row.condition in before and row.condition is not None):
                    raise _wrong(
                        behaviour,
                        f"there are two rows for {name!r} in {state}. Keep one of them, or let the first have a "
                        "condition of its own: when=...",
                    )
                before.append(row.condition)


def _check_settings(behaviour: Behaviour) -> None:
    """A request has the same settings wherever it is made in one state: they are found by the state."""
    seen: dict[tuple[str, str], FlowRequest] = {}
    for row in behaviour.rows:
        for target in behaviour.targets_of(row):
            for one in row.actions:
                if isinstance(one, FlowRequest):
                    other = seen.setdefault((target.name, one.name), one)
                    if (other.retry, other.timeout) != (one.retry, one.timeout):
                        raise _wrong(
                            behaviour,
                            f"{one.name!r} has different options in {target.name}. Give it the same in each row.",
                        )
                    if target.at_most_once and one.retry.attempts > 1:
                        raise _wrong(
                            behaviour,
                            f"{one.name!r} is sent again in {target!r}, whose actions run at most once. Leave one of "
                            f"them out: .do({one.name}.options(retry=Retry.NONE)).",
                        )


def _check_errors(behaviour: Behaviour) -> None:
    """An error leads to an event that needs no value: it brings its class as the code, and its text as the reason."""
    for action in behaviour.actions.values():
        for error, event in action.errors.items():
            for name, type in types_of(event.body).items():
                if name in CODES or name in event.optional:
                    continue
                try:
                    payload.decode(b"null", type)
                except PayloadError as refused:
                    raise _wrong(
                        behaviour,
                        f"{action!r} has errors={{{error.__name__}: {event.name}}}, and {event.name!r} takes {name!r}, "
                        "which no error brings. Call it `code` (the error's class) or `reason` (its text), or give it "
                        "a default.",
                    ) from refused


def _check_ways(behaviour: Behaviour) -> None:
    """Every state can be come to, and left if it is not the end."""
    (beginning,) = behaviour.beginnings
    first = beginning.target.name if beginning.target else ""
    reached = behaviour.reachable(first)
    for state in behaviour.states.values():
        if state.name not in reached:
            raise _wrong(behaviour, f"no row leads to {state!r}. Add one with .to({state.name}), or remove the state.")
        ways = behaviour.ways(state.name)
        if not state.terminal and all(row.target is None or row.target is state for row in ways):
            raise _wrong(
                behaviour, f"no row leads out of {state!r}. Add one, or make it the end: flow.State(terminal=True)."
            )
        if state.timeout is not None and (state.name, state.timed_out.name) not in behaviour.of:
            raise _wrong(
                behaviour,
                f"{state!r} has a timeout that no row expects. Add flow.on({state.timed_out}, in_={state.name}).",
            )


def _check_use(behaviour: Behaviour) -> None:
    """Every event is expected somewhere, and every action is done somewhere."""
    expected = {name for _, name in behaviour.of}
    for event in behaviour.events.values():
        if event.name not in expected:
            raise _wrong(behaviour, f"no row expects the event {event.name!r}. Add one, or remove the event.")
    done = {one.name for row in behaviour.rows for one in row.actions}
    for action in behaviour.actions.values():
        if action.name not in done:
            raise _wrong(behaviour, f"no row does {action!r}. Add .do({action.name}) to one, or remove it.")
    asked = {one.condition.name for one in behaviour.rows if one.condition is not None}
    for condition in behaviour.conditions.values():
        if condition.name not in asked:
            raise _wrong(behaviour, f"no row has {condition!r}. Add when={condition.name} to one, or remove it.")
    for timed in (*behaviour.stretches.values(), *behaviour.actions.values()):
        if timed.timeout is not None and timed.timed_out.name not in expected:
            raise _wrong(behaviour, f"no row expects {timed.timed_out}. Add flow.on({timed.timed_out}).")


def _check_outcomes(behaviour: Behaviour, row: Row) -> None:
    """What an action declares to happen is expected where it is done, or further on."""
    for target in behaviour.targets_of(row):
        ahead = behaviour.reachable(target.name)
        for action in row.actions:
            if isinstance(action, FlowRequest) and target.terminal:
                raise _wrong(
                    behaviour, f"{row} makes {action!r} in a terminal state, where no answer is heard. Use an action."
                )
            for name in behaviour.outcomes(action):
                if not any((state, name) in behaviour.of for state in ahead):
                    raise _wrong(
                        behaviour,
                        f"{action!r} may lead to {name!r}, which no row expects in {target.name} or after it. "
                        f"Add flow.on({name}, in_={target.name}).",
                    )
