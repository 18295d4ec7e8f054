"""The next attempt: whether and when a step is tried again after one that has failed, by the step's retry policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.clock import SECOND, microseconds
from perdure.runtime.steps.isolated.protocol import StepRaised

if TYPE_CHECKING:
    from perdure.runtime.steps.attempt_run import AttemptRun


def planned(failed: AttemptRun, error: BaseException | StepRaised, now: int, chance: Callable[[], float]) -> int | None:
    """When the next attempt may begin (the store's microseconds), or None if the policy gives up."""
    policy = failed.ask.step.retry
    if not (error.retries if isinstance(error, StepRaised) else policy.retries(error)):
        return None
    # The history is ahead of a clock that was set back: a retry follows its failure there too.
    now = max(now, failed.instance.at)
    spent = (now - failed.since) / SECOND
    delay = policy.next_delay(failed.number, spent, chance())
    return None if delay is None else now + microseconds(delay)
