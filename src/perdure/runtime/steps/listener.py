"""A step listener: who hears what becomes of steps; a worker's agent tells its scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from perdure.kernel.failure import Failure
    from perdure.kernel.retry import FailedAttempt
    from perdure.runtime.instance import Activation
    from perdure.runtime.steps.attempt_run import Execution
    from perdure.turns.ask import Ask


class StepListener(Protocol):
    """What becomes of the steps of the processes that are held here; all of it is told on the event loop."""

    def feed(self, instance: Activation, /) -> None:
        """A step has an answer, which was delivered: the next turn hears it."""

    def step_failed(self, instance: Activation, ask: Ask[Any], failure: Failure) -> None:
        """A step has no attempt left."""

    def step_tried(self, instance: Activation, ask: Ask[Any], tried: FailedAttempt) -> None:
        """An attempt has failed, and another will follow."""

    def step_due(self, instance: Activation, ask: Ask[Any]) -> None:
        """The wait before an attempt has passed."""

    def undo_due(self, instance: Activation, undo: Ask[Any]) -> None:
        """An undo that waits in a queue may be asked for."""

    def step_shown(self, attempt: Execution, name: str, raw: bytes) -> None:
        """An attempt has published a value."""

    def came_late(self, attempt: Execution, value: Any) -> None:
        """An attempt that was given up has come to this value."""

    def lease_lapsed(self, instance: Activation) -> object:
        """The lease of a process was over before a step of it could begin or go on."""
