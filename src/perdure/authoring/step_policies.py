"""Step policies: what the policies of this program set for a step of a workflow, and the step as it is run then."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from perdure.authoring.queue import step_names
from perdure.authoring.step import Step
from perdure.authoring.workflow import DEFINED
from perdure.kernel.policy import ANY, Policies, Ruling, Subject
from perdure.turns.ask import Undo


class StepPolicies:
    """The policies of a worker. A step is resolved once, however often it is asked for."""

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self.any = bool(policies)
        self._found: dict[tuple[Any, ...], dict[str, Ruling]] = {}
        self._made: dict[tuple[str, str], tuple[Any, Any]] = {}

    def check(self) -> None:
        """Raise DefinitionError if a policy names no workflow and step of this program."""
        self.policies.check(_workflows(), step_names())

    def found(self, kind: str, step: Step[Any, Any]) -> dict[str, Ruling]:
        """What is set for a step of a workflow."""
        known = kind, step.name, step.declared, step.set_here
        if known not in self._found:
            self._found[known] = self.policies.of((kind, ANY, step.name), step.declared, step.set_here)
        return self._found[known]

    def applied(self, kind: str, step: Any) -> Any:
        """The step, or child, as a workflow runs it: with what is set for it and for its undo."""
        place = kind, step.name
        before, after = self._made.get(place, (None, None))
        if before is not step:
            after = self._with_undo(kind, self._alone(kind, step))
            self._made[place] = step, after
        return after

    def _alone(self, kind: str, step: Any) -> Any:
        found = self.found(kind, step) if isinstance(step, Step) else None
        return step.by_policy({name: one.value for name, one in found.items()}) if found else step

    def _with_undo(self, kind: str, step: Any) -> Any:
        undo: Undo | None = step.undo
        if undo is None or (its := self._alone(kind, undo.step)) is undo.step:
            return step
        other = copy(step)
        other.undo = replace(undo, step=its)
        return other


def subjects() -> Iterator[Subject]:
    """Each workflow of this program with each of its steps: which of them it asks for is known only when it runs."""
    return ((kind, ANY, name) for kind in _workflows() for name in step_names())


def _workflows() -> list[str]:
    return sorted({kind for kind, _ in list(DEFINED)})


NO_POLICIES = StepPolicies(Policies())
