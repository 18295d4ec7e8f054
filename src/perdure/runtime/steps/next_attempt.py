"""The next attempt: what follows one that has failed, by the step's retry policy and its chain of thresholds."""

from __future__ import annotations

from collections.abc import Callable

from perdure.clock import SECOND, microseconds
from perdure.kernel.failure import Failure
from perdure.kernel.retry import AfterFailure, FailedAttempt
from perdure.runtime.steps.attempt_run import AttemptRun
from perdure.runtime.steps.isolated.protocol import StepRaised
from perdure.turns.saga import UndoAsk

_HOPELESS = AfterFailure(None, 0, 0, alert=False)


def planned(
    failed: AttemptRun, error: BaseException | StepRaised, now: int, chance: Callable[[], float]
) -> AfterFailure:
    """What follows a failed attempt at the store's time ``now``. An undo without an attempt left breaks anyway."""
    ask = failed.ask
    retry = ask.step.retry
    if not (error.retries if isinstance(error, StepRaised) else retry.retries(error)):
        return _HOPELESS
    spent = (now - failed.since) / SECOND
    tried = failed.instance.steps.attempts.get(ask.slot)
    stage, before = (0, 0) if tried is None else (tried.stage, tried.before)
    what = error.classes if isinstance(error, StepRaised) else error
    plan = retry.plan(failed.number, spent, chance(), stage, before, what)
    return plan._replace(breaks=False) if type(ask) is UndoAsk else plan


def anew(attempt_run: AttemptRun) -> AttemptRun:
    """The same attempt once more, under way in the place of one whose function was not called."""
    again = AttemptRun(attempt_run.agent, attempt_run.instance, attempt_run.ask, attempt_run.number, attempt_run.since)
    again.timeout = attempt_run.timeout
    attempt_run.instance.steps.begin(attempt_run.ask.slot, again)
    return again


def record(failed: AttemptRun, plan: AfterFailure, failure: Failure, now: int) -> FailedAttempt | None:
    """The record of an attempt that another follows, or a break; None if the step has failed for good."""
    if plan.delay is None and not plan.breaks:
        return None
    step = failed.ask.step
    timeout = step.retry.next_timeout(step.timeout, failed.timeout, plan.stage)
    return FailedAttempt(
        failed.number,
        failed.since,
        now + microseconds(plan.delay or 0.0),
        failure,
        plan.stage,
        plan.before,
        timeout if timeout > step.timeout else 0.0,
        plan.breaks,
    )
