"""The machine behind each operation: it goes on portion by portion, whatever dies, and can be paused between two."""

from __future__ import annotations

from msgspec.structs import asdict

from perdure.authoring.machine import Machine, call, complete, field, init, run_now, schedule, suspend, timer
from perdure.authoring.operation.plan import (
    CHANGED,
    OperationPlan,
    OperationStatus,
    Selected,
    Window,
    add_reasons,
    carry_out,
    count,
    look_back,
    select,
)
from perdure.clock import microseconds
from perdure.kernel.names import OPERATION
from perdure.turns.current import turn_for
from perdure.turns.verbs import process_id

KIND = OPERATION
PORTION = 1_000
"""How many processes are commanded between two looks at whether it is to pause; with a rate, those of a second."""
WAIT_SECONDS = 1.0
"""How long it waits for another operation that goes first, before it looks again."""


def portion(rate: float | None) -> int:
    """How many processes are commanded together at a rate of so many a second."""
    return PORTION if rate is None else max(1, min(PORTION, round(rate)))


class OperationMachine(Machine, name=KIND):
    """An operation. ``phase`` is one of canary, watching the canary, running, watching, done, stopped, aborted.

    ``paused``, ``stopped`` and ``waits`` say why it does not go on. ``done`` counts processes that were commanded,
    ``left_out`` and ``failed`` why others were not, ``relapsed`` those that came back, ``in_canary`` those that were
    commanded as the canary. ``window`` says what counts now.
    """

    plan: OperationPlan
    began: int
    window: Window
    phase: str = "running"
    paused: str = ""
    stopped: str = ""
    waits: str = ""
    before: str | None = None
    planned: int | None = None
    counted: bool = False
    done: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    relapsed: int = 0
    looked: int = 0
    pardoned: tuple[int, int, int] = (0, 0, 0)
    in_canary: int = 0

    @init
    def made(self, plan: OperationPlan, began: int) -> None:
        """Begin, with the canary if there is one."""
        self.plan, self.began, self.window = plan, began, Window(began)
        self.phase = "canary" if plan.canary else "running"
        run_now()

    @timer
    async def due(self) -> None:
        """Do the next portion, or look what has become of those before."""
        if self.phase in ("canary", "running"):
            if not self.counted:
                self.planned = (self.planned or 0) + await count(self.plan, self.window)
                self.counted = True
            if not (self.plan.stops and await self._must_stop()):
                most = portion(self.plan.rate)
                await self._portion(min(most, self._lacking) if self.phase == "canary" else most)
        elif self.phase.startswith("watching"):
            await self._look_back()

    @call
    def pause(self, why: str) -> None:
        """Do nothing more until it is resumed."""
        self.paused = why or "paused"
        suspend()

    @call
    def resume(self) -> None:
        """Go on, also after it has stopped itself: what has failed until then stops it no more."""
        if self.phase == "stopped":
            self.phase, self.stopped = "running", ""
            self.pardoned = (self.done, self.relapsed, sum(self.failed.values()))
        self.paused = ""
        self._go_on(self.plan.watch if self.phase.startswith("watching") else 0)

    @call
    def abort(self, why: str) -> None:
        """Command nothing more, for good; what was commanded stays so."""
        self.phase, self.stopped, self.paused, self.waits = "aborted", why or "aborted", "", ""
        complete(asdict(self.outcome))

    @property
    def outcome(self) -> OperationStatus:
        """What has become of it until now."""
        return OperationStatus(
            self.phase, self.done, self.relapsed, self.left_out, self.paused, self.stopped, self.planned, self.failed,
            self.waits,
        )  # fmt: skip

    @property
    def _lacking(self) -> int:
        """How many processes the canary lacks."""
        return self.plan.canary - self.in_canary

    async def _portion(self, most: int) -> None:
        chosen: Selected = await select(self.plan, process_id(), self.window, self.before, most)
        self.waits = chosen.waits
        if chosen.waits:
            schedule(WAIT_SECONDS)
            return
        if chosen.processes:
            carried = await carry_out(self.plan, process_id(), self.window, chosen.processes)
            self.done += carried.done
            add_reasons(self.left_out, carried.left_out)
            add_reasons(self.failed, carried.failed)
            if self.phase == "canary":
                self.in_canary += carried.done
        self.before = chosen.before
        pause = 0.0 if self.plan.rate is None else len(chosen.processes) / self.plan.rate
        if chosen.before is None:
            self._all_seen()
        elif self.phase == "canary" and not self._lacking:
            self._watch("watching the canary", pause)
        else:
            self._go_on(pause)

    def _all_seen(self) -> None:
        """Count what had moved on before it was reached; then look again for what has come to fit, or for relapses."""
        moved = (self.planned or 0) - self.outcome.seen
        if moved > 0:
            add_reasons(self.left_out, {CHANGED: moved})
        present = _present()
        if present < self.began + microseconds(self.plan.live):
            self.window, self.counted = Window(present, self.window.until), False
            self._watch("watching the canary" if self.phase == "canary" and self.in_canary else self.phase)
        else:
            self._watch("watching")

    def _go_on(self, seconds: float) -> None:
        if seconds:
            schedule(seconds)
        else:
            run_now()

    def _watch(self, phase: str, least: float = 0.0) -> None:
        self.phase = phase
        self._go_on(max(self.plan.watch, least))

    async def _look_back(self) -> None:
        self.relapsed = await look_back(self.plan, process_id(), self.began)
        if self.phase == "watching":
            self.phase = "done"
            complete(asdict(self.outcome))
        elif not self.done:  # a release before has counted what the canary had only selected: it has shown nothing
            self.phase, self.in_canary = "canary", 0
            run_now()
        elif self.relapsed > self.plan.stop_at * self.done:
            self._stop(f"{self.relapsed} of {self.done} processes of the canary have relapsed")
        else:
            self.phase = "running"
            run_now()

    async def _must_stop(self) -> bool:
        """Whether a stop condition holds. Relapses are looked for no more often than they are watched for."""
        present = _present()
        if self.done and present - self.looked >= microseconds(self.plan.watch):
            self.looked = present
            self.relapsed = await look_back(self.plan, process_id(), self.began)
        done, relapsed, failed = self.pardoned
        done, relapsed, failed = self.done - done, self.relapsed - relapsed, sum(self.failed.values()) - failed
        if 0 < self.plan.stop_after_failures <= relapsed + failed:
            self._stop(f"{relapsed} processes have relapsed and {failed} could not be commanded")
        elif relapsed > self.plan.stop_when_relapsed * done:
            self._stop(f"{relapsed} of {done} processes have relapsed")
        return self.phase == "stopped"

    def _stop(self, why: str) -> None:
        self.phase, self.stopped = "stopped", why
        suspend()


def _present() -> int:
    return turn_for("an operation").now
