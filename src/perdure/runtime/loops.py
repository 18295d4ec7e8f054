"""The loops of a worker: the turn loop of each process, which runs the steps as policies and states of flows say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.authoring.step_policies import StepPolicies
from perdure.authoring.workflow import Workflow
from perdure.kernel.child import is_task
from perdure.kernel.process import Process
from perdure.turns.loop import Ask, TurnLoop


class PolicyLoop(TurnLoop):
    """The loop of a process whose worker has policies, or whose states say how steps run; others pay nothing for it."""

    __slots__ = ("_kind", "_policies")

    def __init__(self, process: Process, policies: StepPolicies, backlog: int) -> None:
        super().__init__(process.id, process.id, backlog)
        self._kind = process.kind
        self._policies = policies

    def ask(self, step: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ask[Any]:
        """Ask for a step as it is run here."""
        machine = self.machine
        if machine is None:
            return super().ask(self._policies.applied(self._kind, step), args, kwargs)
        by_state = machine.once, machine.revival_delay, machine.keep_arguments
        return super().ask(self._policies.applied(self._kind, step, machine.state, *by_state), args, kwargs)

    def rulings(self, state: str, action: Any) -> Mapping[str, Any]:
        """What policies set for an action of a flow in that state, by property."""
        return {name: one.value for name, one in self._policies.of_action(self._kind, state, action).items()}

    def limit(self, state: str, timed: Any) -> float | None:
        """For how many seconds a flow may be in a state, or on a stretch from there, as policies set it on entering."""
        return self._policies.limit(self._kind, state, timed)


def loop_of(process: Process, workflow: Workflow[Any, Any], policies: StepPolicies, backlog: int = 0) -> TurnLoop:
    """The loop of a process. A task has its policy from the workflow that has asked for it."""
    if not (policies.any or workflow.by_state) or is_task(process.kind):
        return TurnLoop(process.id, process.id, backlog)
    return PolicyLoop(process, policies, backlog)
