"""The machine behind each operation: it goes on portion by portion, whatever dies, and can be paused between two."""

from __future__ import annotations

from msgspec.structs import asdict

from perdure.authoring.machine import Machine, call, complete, field, init, run_now, schedule, suspend, timer
from perdure.authoring.operation.plan import (
    OperationPlan,
    OperationStatus,
    Selected,
    add_reasons,
    carry_out,
    look_back,
    select,
)
from perdure.kernel.names import LIBRARY

KIND = f"{LIBRARY}operation"
PORTION = 1_000
"""How many processes are commanded between two looks at whether it is to pause; with a rate, those of a second."""


def portion(rate: float | None) -> int:
    """How many processes are commanded together at a rate of so many a second."""
    return PORTION if rate is None else max(1, min(PORTION, round(rate)))


class OperationMachine(Machine, name=KIND):
    """An operation. ``phase`` is one of canary, watching the canary, running, watching, done, stopped, aborted.

    ``paused`` and ``stopped`` say why. ``done`` counts processes that were commanded, ``left_out`` why others were not,
    ``relapsed`` those that came back. ``frozen`` is the time since which a process must not have changed.
    """

    plan: OperationPlan
    id: str
    frozen: int
    phase: str = "running"
    paused: str = ""
    stopped: str = ""
    before: str | None = None
    done: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    relapsed: int = 0

    @init
    def made(self, plan: OperationPlan, id: str, frozen: int) -> None:
        """Begin, with the canary if there is one."""
        self.plan, self.id, self.frozen = plan, id, frozen
        self.phase = "canary" if plan.canary else "running"
        run_now()

    @timer
    async def due(self) -> None:
        """Do the next portion, or look what has become of those before."""
        if self.phase in ("canary", "running"):
            await self._portion(self.plan.canary if self.phase == "canary" else portion(self.plan.rate))
        elif self.phase.startswith("watching"):
            await self._look_back()

    @call
    def pause(self, why: str) -> None:
        """Do nothing more until it is resumed."""
        self.paused = why or "paused"
        suspend()

    @call
    def resume(self) -> None:
        """Go on, also after it has stopped itself."""
        if self.phase == "stopped":
            self.phase, self.stopped = "running", ""
        self.paused = ""
        run_now()

    @call
    def abort(self, why: str) -> None:
        """Command nothing more, for good; what was commanded stays so."""
        self.phase, self.stopped, self.paused = "aborted", why or "aborted", ""
        complete(asdict(self.outcome))

    @property
    def outcome(self) -> OperationStatus:
        """What has become of it until now."""
        return OperationStatus(self.phase, self.done, self.relapsed, self.left_out, self.paused, self.stopped)

    async def _portion(self, most: int) -> None:
        chosen: Selected = await select(self.plan, self.frozen, self.before, most)
        if chosen.processes:
            carried = await carry_out(self.plan, self.id, self.frozen, chosen.processes)
            self.done += carried.done
            add_reasons(self.left_out, carried.left_out)
        self.before = chosen.before
        if chosen.before is None:
            self._watch("watching")
        elif self.phase == "canary":
            self._watch("watching the canary")
        else:
            self._go_on(0.0 if self.plan.rate is None else len(chosen.processes) / self.plan.rate)

    def _go_on(self, seconds: float) -> None:
        if seconds:
            schedule(seconds)
        else:
            run_now()

    def _watch(self, phase: str) -> None:
        self.phase = phase
        self._go_on(self.plan.watch)

    async def _look_back(self) -> None:
        self.relapsed = await look_back(self.plan, self.id, self.frozen)
        if self.phase == "watching":
            self.phase = "done"
            complete(asdict(self.outcome))
        elif self.done and self.relapsed > self.plan.stop_at * self.done:
            self.phase = "stopped"
            self.stopped = f"{self.relapsed} of {self.done} processes of the canary have relapsed"
            suspend()
        else:
            self.phase = "running"
            run_now()
