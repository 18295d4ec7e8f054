"""The machine behind each check run: it goes on portion by portion, whatever dies, and can be cancelled between two."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from perdure.authoring.check.plan import CheckPlan, CheckStatus, examine
from perdure.authoring.machine import Machine, call, complete, field, init, run_now, schedule, timer
from perdure.kernel.names import LIBRARY

KIND = f"{LIBRARY}check"
PORTION = 200
"""How many processes are examined between two looks at whether it is cancelled."""


class CheckMachine(Machine, name=KIND):
    """A check run. ``phase`` is running, done or cancelled; ``found`` and ``mended`` count faults by check."""

    plan: CheckPlan
    phase: str = "running"
    before: str | None = None
    checked: int = 0
    found: dict[str, int] = field(default_factory=dict)
    mended: dict[str, int] = field(default_factory=dict)

    @init
    def made(self, plan: CheckPlan) -> None:
        """Begin with the newest processes."""
        self.plan = plan
        run_now()

    @timer
    async def due(self) -> None:
        """Examine the next portion."""
        portion = await examine(self.plan, self.before, PORTION)
        self.checked += portion.checked
        _add(self.found, portion.found)
        _add(self.mended, portion.mended)
        self.before = portion.before
        if portion.before is None:
            self._end("done")
        elif self.plan.rate is None:
            run_now()
        else:
            schedule((portion.checked + portion.skipped) / self.plan.rate)

    @call
    def cancel(self, why: str) -> None:
        """Examine nothing more; what was mended stays mended."""
        self._end("cancelled", why or "cancelled")

    def _end(self, phase: str, cancelled: str = "") -> None:
        self.phase = phase
        total = self.plan.total
        complete(asdict(CheckStatus(phase, self.checked, total, self.found, self.mended, cancelled)))


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        counts[name] = counts.get(name, 0) + number
