"""Pacing: when the attempts of a step begin, as its retry policy, its budget and its breaker let them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.clock import SECOND, microseconds
from perdure.runtime.steps.attempt_run import AttemptRun, Runner
from perdure.runtime.steps.budget import Budgets
from perdure.runtime.steps.circuits import Circuits, Probe
from perdure.runtime.steps.isolated.protocol import StepRaised

if TYPE_CHECKING:
    from perdure.kernel.failure import Failure
    from perdure.kernel.retry import FailedAttempt
    from perdure.runtime.instance import Instance
    from perdure.runtime.parts import WorkerParts
    from perdure.turns.loop import Ask


class Pacing:
    """The budgets and the circuits of one worker; it is ``heeding`` once one of them has to hear of successes."""

    def __init__(self, parts: WorkerParts, runner: Runner) -> None:
        self._time = parts.time
        self._random = parts.machine.random
        self._counters = parts.telemetry.counters
        self._budgets = Budgets()
        self.circuits = Circuits(parts, runner)
        self.heeding = False

    def delay(self, instance: Instance, ask: Ask[Any], tried: FailedAttempt) -> float:
        """Seconds until the next attempt may begin, as planned at the last failure and by the step's budget."""
        now = self._time.now()
        if tried.retry_at > now:
            return (tried.retry_at - now) / SECOND
        breaker = ask.step.breaker
        if breaker is not None and not self.circuits.closed(breaker):
            return 0.0  # the breaker says when, and the budget is kept for the time after that
        self.heeding = True
        delay = self._budgets.wait(ask.step, tried, now, self._time.monotonic(), self._random)
        if delay > 0:
            self._counters["retries_put_off"] += 1
            instance.steps.tried(ask.slot, replace(tried, retry_at=now + microseconds(delay)))
        return delay

    def bars(self, attempt_run: AttemptRun) -> bool:
        """Whether an attempt is not made now, because of its step's breaker: it is begun again later."""
        self.heeding = True
        return self.circuits.stop(attempt_run)

    def announced(self, attempt_run: AttemptRun, probe: int) -> AttemptRun:
        """The attempt of a step whose beginning is written: its breaker was asked before that."""
        return self.circuits.probe(attempt_run, probe) if probe else attempt_run

    def succeeded(self, attempt_run: AttemptRun) -> None:
        """An attempt has brought a result: that pays for a retry of its step, and may close its breaker."""
        self._budgets.earned(attempt_run.ask.step)
        if type(attempt_run) is Probe:
            self.circuits.ended(attempt_run, None, None)

    def failed(self, attempt_run: AttemptRun, error: BaseException | StepRaised, failure: Failure) -> None:
        """An attempt has failed, and this is what is recorded of it."""
        if attempt_run.ask.step.breaker is not None:
            self.circuits.ended(attempt_run, error, failure)
