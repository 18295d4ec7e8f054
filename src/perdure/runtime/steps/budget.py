"""A budget of retries: a worker makes only so many of one step beyond those that successes pay for; others wait.

Kept in memory: each worker has budgets of its own, full again when it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import SECOND
from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.kernel.retry import FailedAttempt
    from perdure.turns.ask import AskedStep

log = logger("step")


class Budget:
    """``spent`` are the retries that were not earned back; time earns the whole ``size`` in RETRY_BUDGET_SECONDS."""

    __slots__ = ("_at", "empty", "size", "spent")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self.spent = 0.0
        self.empty = False
        self._at = now

    def spend(self, now: float) -> bool:
        """Take one retry, if there is one; ``now`` is monotonic seconds."""
        self.earn((now - self._at) * self.size / limits.RETRY_BUDGET_SECONDS)
        self._at = now
        if self.spent + 1.0 > self.size:
            return False
        self.spent += 1.0
        return True

    def earn(self, retries: float = 1.0) -> None:
        """Pay for so many retries: one by each success."""
        self.spent = max(0.0, self.spent - retries)


class Budgets(dict[tuple[str, int], Budget]):
    """The budgets of one worker, by step and size; there is one from the step's first retry on."""

    def wait(
        self, step: AskedStep, tried: FailedAttempt, now: int, monotonic: float, chance: Callable[[], float]
    ) -> float:
        """Seconds by which a retry that is due is put off, 0.0 if it may begin. ``now`` is the store's time.

        The wait is about as long as the step has been tried already, at most the policy's ``cap``. It does not pass
        the policy's ``total``: the attempt at that time is made on credit.
        """
        policy = step.retry
        if policy.budget is None:
            return 0.0
        budget = self.get((step.name, policy.budget))
        if budget is None:
            budget = self[step.name, policy.budget] = Budget(policy.budget, monotonic)
        if budget.spend(monotonic):
            return 0.0
        age = (now - tried.since) / SECOND
        wait = max(limits.RETRY_LOOK_SECONDS, min(age, policy.cap)) * (0.5 + chance() / 2)
        if policy.total is not None and (wait := min(wait, policy.total - age)) <= 0:
            budget.spent += 1.0
            return 0.0
        if not budget.empty:
            budget.empty = True
            log.warning(
                "%s fails much more often than it succeeds: its budget of %d retries is spent, and further ones wait "
                "until it succeeds; check what it depends on (Retry(budget=…) sets another size)",
                step,
                budget.size,
            )
        return wait

    def earned(self, step: AskedStep) -> None:
        """An attempt of the step has succeeded."""
        budget = self.get((step.name, step.retry.budget or 0))
        if budget is None:
            return
        budget.earn()
        if budget.empty and budget.spent <= budget.size / 2:
            budget.empty = False
            log.info("%s succeeds again: its retries no longer wait", step)
