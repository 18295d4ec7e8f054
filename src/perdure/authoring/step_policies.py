"""Step policies: what the policies of this program set for a step of a workflow, and the step as it is run then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from perdure.authoring.queue import step_names
from perdure.authoring.step import Step
from perdure.authoring.workflow import DEFINED
from perdure.errors import DefinitionError
from perdure.kernel.policy import ANY, Policies, Ruling, Subject
from perdure.turns.ask import Undo

NOTHING: Mapping[str, Any] = MappingProxyType({})


class StepPolicies:
    """The policies of a worker. A step is resolved once, however often it is asked for."""

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self.any = bool(policies)
        self._found: dict[tuple[Any, ...], dict[str, Ruling]] = {}
        self._made: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def check(self) -> None:
        """Raise DefinitionError if a policy names nothing of this program, or gives a timeout to what expects none."""
        flows, steps = done_in(), step_names()
        self.policies.check(_workflows(), steps, _named_in())
        self._check_times(set(steps))
        for kind, states in flows.items():
            for state, actions in states.items():
                for name, action in actions.items():
                    ruling = self.policies.of((kind, state, name)).get("timeout")
                    names_it = ruling is not None and ruling.key.endswith(f".{name}") and name not in steps
                    if ruling is not None and names_it and action.timeout is None:
                        raise DefinitionError(
                            f"the policy {ruling.key!r} of {ruling.source} sets a timeout, and {kind}.{name} has none. "
                            f"Write @flow.action(timeout=...), and a row for {name}.timed_out."
                        )

    def found(self, kind: str, step: Step[Any, Any], state: str = ANY) -> dict[str, Ruling]:
        """What is set for a step that a workflow asks for, a flow in that state."""
        known = kind, state, step.name, step.declared, step.set_here
        if known not in self._found:
            is_action = any(step.name in actions for actions in done_in().get(kind, {}).values())
            name = ANY if is_action else step.name  # keys that name it mean the action
            self._found[known] = self.policies.of((kind, state, name), step.declared, step.set_here)
        return self._found[known]

    def of_action(self, kind: str, state: str, action: Any) -> dict[str, Ruling]:
        """What is set for an action or a request of a flow in that state."""
        known = kind, state, action.name, action.declared, action.set_here, "action"
        if known not in self._found:
            self._found[known] = self.policies.of((kind, state, action.name), action.declared, action.set_here)
        return self._found[known]

    def of_time(self, kind: str, state: str, timed: Any) -> dict[str, Ruling]:
        """What is set for the time that a flow may spend in that state, or on a stretch which begins there.

        Only a key that names it counts: ``*`` stands for what is done there. A name that a step has means the step.
        """
        known = kind, state, timed.name, "time"
        if known not in self._found:
            found = {} if timed.name in step_names() else self.policies.of((kind, state, timed.name), ("timeout",))
            self._found[known] = {name: one for name, one in found.items() if name == "timeout"}
        return self._found[known]

    def limit(self, kind: str, state: str, timed: Any) -> float | None:
        """For how many seconds a flow may be in that state, or on a stretch that begins there; None: for ever."""
        ruling = self.of_time(kind, state, timed).get("timeout")
        seconds: float | None = timed.timeout
        return seconds if ruling is None or seconds is None else float(ruling.value)

    def _check_times(self, steps: Set[str]) -> None:
        """Raise DefinitionError if a policy names a state or a stretch, and sets what that cannot have."""
        actions = {name for states in done_in().values() for there in states.values() for name in there}
        for kind, states in timed_in().items():
            for state, there in states.items():
                for name in sorted(there.keys() - steps):
                    for property, one in self.policies.of((kind, state, name)).items():
                        also_an_action = name in actions and one.key.startswith(f"{ANY}.")
                        if one.key.endswith(f".{name}") and not also_an_action:
                            _check_time(there[name], property, one, kind, state)

    def applied(
        self,
        kind: str,
        step: Any,
        state: str = ANY,
        once: bool = False,
        revival_delay: float | None = None,
        keep_arguments: bool = False,
    ) -> Any:
        """The step, or child, as a workflow runs it: with what is set for it and for its undo.

        The state of a flow, or a policy for an action in it, may say that its steps run at most ``once``, what their
        ``revival_delay`` is, and that they ``keep_arguments``.
        """
        place = kind, state, step.name, once, revival_delay, keep_arguments
        before, after = self._made.get(place, (None, None))
        if before is not step:
            by_state: dict[str, Any] = {"at_most_once": True} if once else {}
            if revival_delay is not None:
                by_state["revival_delay"] = revival_delay
            if keep_arguments:
                by_state["keep_arguments"] = True
            after = self._with_undo(kind, state, self._alone(kind, state, step, by_state))
            self._made[place] = step, after
        return after

    def _alone(self, kind: str, state: str, step: Any, by_state: Mapping[str, Any] = NOTHING) -> Any:
        if not isinstance(step, Step):
            return step
        given = {name: one.value for name, one in self.found(kind, step, state).items()}
        given = {**by_state, **given}
        if "at_most_once" in by_state:  # no policy lets run twice what the code says is not to
            given["at_most_once"] = True
        return step.by_policy(given) if given else step

    def _with_undo(self, kind: str, state: str, step: Any) -> Any:
        undo: Undo | None = step.undo
        if undo is None or (its := self._alone(kind, state, undo.step)) is undo.step:
            return step
        other = copy(step)
        other.undo = replace(undo, step=its)
        return other


def subjects() -> Iterator[Subject]:
    """Each workflow of this program with each of its steps: which of them it asks for is known only when it runs.

    Of a flow, each of its states with the actions and requests that are done in it, with each step, and with what has
    a time: itself, and the stretches that begin in it.
    """
    steps, flows, timed = step_names(), done_in(), timed_in()
    for kind in _workflows():
        yield from ((kind, ANY, name) for name in steps)
        for state, actions in flows.get(kind, {}).items():
            times = [name for name, one in timed.get(kind, {}).get(state, {}).items() if one.timeout is not None]
            yield from ((kind, state, name) for name in dict.fromkeys([*actions, *steps, *times]))


def _check_time(timed: Any, property: str, ruling: Ruling, kind: str, state: str) -> None:
    what = type(timed).__name__.lower()
    if property != "timeout":
        raise DefinitionError(
            f"the policy {ruling.key!r} of {ruling.source} sets {property}, and {kind}.{timed.name} is a {what}: it "
            f"has a timeout alone. Write {kind}.{state}.* for what is done there."
        )
    if timed.timeout is None:
        raise DefinitionError(
            f"the policy {ruling.key!r} of {ruling.source} sets a timeout, and the {what} {kind}.{timed.name} has "
            f"none. Write flow.{what.capitalize()}(timeout=...), and a row for {timed.name}.timed_out."
        )


Parts: TypeAlias = dict[str, dict[str, dict[str, Any]]]
"""Parts of flows, by flow, state and name."""


def done_in() -> Parts:
    """The flows of this program, each with its states and the actions and requests that are done in these."""
    return _merged((kind, workflow.done_in) for (kind, _), workflow in list(DEFINED.items()))


def timed_in() -> Parts:
    """The flows of this program, each with its states, and with what has, or might have, a time in these."""
    return _merged((kind, workflow.timed_in) for (kind, _), workflow in list(DEFINED.items()))


def _named_in() -> Parts:
    """All that a key may name in the states of flows."""
    return _merged([*timed_in().items(), *done_in().items()])


def _merged(parts: Iterable[tuple[str, Mapping[str, Mapping[str, Any]]]]) -> Parts:
    found: Parts = {}
    for kind, states in parts:
        for state, there in states.items():
            found.setdefault(kind, {}).setdefault(state, {}).update(there)
    return found


def _workflows() -> list[str]:
    return sorted({kind for kind, _ in list(DEFINED)})


NO_POLICIES = StepPolicies(Policies())
