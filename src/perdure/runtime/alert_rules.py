"""The evaluation of alert rules by a worker: it begins once there is a rule, and looks at those that are due.

A worker whose database has no rule reads nothing for it: it hears of the first one from the sweep log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from perdure import limits
from perdure.kernel.note import ALERT_RULE
from perdure.loop import Loop
from perdure.runtime.parts import WorkerParts


class Alerting(Protocol):
    """What evaluates the rules: ``engine.alerts``."""

    async def look(self) -> float:
        """Evaluate those that are due; the answer is in how many seconds one is due."""


class AlertingEngine(Protocol):
    """The engine of the worker, as far as it is needed here."""

    @property
    def alerts(self) -> Alerting:
        """What evaluates the rules."""


class AlertRuleWatch:
    """Evaluates the rules of the database while there are any. Which worker does is decided where they stand."""

    def __init__(self, parts: WorkerParts) -> None:
        self._engine: AlertingEngine = parts.engine
        self._machine = parts.machine
        self._looks = False
        self.loop = Loop("alert rules", self._tick, parts.committer.outage, after_error=limits.ALERT_LOOK_SECONDS)

    def begin(self) -> None:
        """There may be rules: look from now on."""
        if not self._looks:
            self._looks = True
            self.loop.start()

    def seen(self, notes: Iterable[str]) -> None:
        """The sweep log has read these notes."""
        if not self._looks and any(name.startswith(ALERT_RULE) for name in notes):
            self.begin()

    async def _tick(self) -> float:
        return await self._engine.alerts.look() * (0.75 + self._machine.random() / 4)
