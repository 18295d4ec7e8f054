"""The machine behind each schedule: it knows how far the schedule has come, and wakes when the next instant is due."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.authoring.machine import Machine, Refusal, call, field, init, schedule, signal, suspend, timer
from perdure.authoring.schedule.definition import Plan, moment
from perdure.authoring.schedule.occurrences import Occurrence, Round, RoundReport, Standing, Target, go_round, look
from perdure.kernel.names import LIBRARY
from perdure.turns.current import turn_for

KIND = f"{LIBRARY}schedule"
RECENT = 10


class Removed(Refusal):
    """The schedule has been removed."""


class ScheduleMachine(Machine, name=KIND):
    """A schedule's machine, whose key is the schedule's name.

    ``paused`` says why the schedule pauses; an empty text is a schedule that runs. ``recent`` are the last occurrences,
    ``triggered`` is the instant of the last one that was started by hand. The counters count occurrences.
    """

    name: str
    plan: Plan
    target: Target | None
    standing: Standing
    paused: str = ""
    started: int = 0
    skipped: int = 0
    missed: int = 0
    recent: list[Occurrence] = field(default_factory=list)
    triggered: int = 0

    @init
    async def made(self, name: str, plan: Plan, target: Target, since: int) -> None:
        """Begin with what comes since it was made, even if no worker ran then."""
        self.name, self.plan, self.target = name, plan, target
        self.standing = Standing(plan.timetable.beginning(since))
        await self._go(target)

    @signal
    async def put(self, plan: Plan, target: Target, since: int) -> None:
        """Take a new plan and a new target. What came before it was sent is behind it if the times are new ones."""
        same = self.target is not None and self.plan.timetable == plan.timetable
        cursor = self.standing.cursor if same else plan.timetable.beginning(since)
        self.plan, self.target, self.standing = plan, target, replace(self.standing, cursor=cursor)
        await self._go(target)

    @timer
    async def due(self) -> None:
        """An instant has come, or a queued occurrence waits."""
        if self.target is not None:
            await self._go(self.target)

    @signal
    def pause(self, why: str) -> None:
        """Start nothing more until it is resumed; what is queued is left out."""
        if self.target is None:
            return
        self.paused = why
        self.skipped += len(self.standing.waiting)
        self.standing = replace(self.standing, waiting=[], due=None)
        suspend()

    @signal
    async def resume(self) -> None:
        """Go on with what comes from now on; failures of processes that have ended by now count no more."""
        if self.paused and self.target is not None:
            self.paused = ""
            self.standing = replace(self.standing, cursor=_now(), failures=0)
            await self._go(self.target, forgiving=True)

    @signal
    def remove(self) -> None:
        """Start nothing any more, and forget what was to be started; processes that run go on."""
        self.target, self.paused, self.standing = None, "", Standing(0)
        suspend()

    @call
    async def trigger(self) -> str:
        """Start a process now, whatever else runs; the answer is its id."""
        started: list[str] = []
        while not started:  # once, unless something was started for this very microsecond
            self.triggered = max(_now(), self.triggered + 1)
            report = await self._round(self._standing_target(), [self.triggered])
            started = [one.process for one in report.started if one.at == self.triggered]
        self._wait()
        return started[0]

    @call
    async def backfill(self, instants: list[int]) -> int:
        """Start the processes of these instants, whatever else runs, and tell how many did not exist yet."""
        wanted = set(instants)
        report = await self._round(self._standing_target(), instants)
        self._wait()
        return sum(one.at in wanted for one in report.started)

    def _standing_target(self) -> Target:
        if self.target is None:
            raise Removed(f"the schedule {self.name!r} has been removed; put it again first")
        return self.target

    async def _go(self, target: Target, *, forgiving: bool = False) -> None:
        """Look what has come, start it, and set the time of the next look."""
        await self._round(target, forgiving=forgiving)
        self._wait()

    async def _round(self, target: Target, at_once: Sequence[int] = (), *, forgiving: bool = False) -> RoundReport:
        """Look what has come, and start it.

        With ``forgiving`` the round is not told of those that have ended: it only knows them no more.
        """
        now = _now()
        running = [one.process for one in self.standing.running]
        ended = await look(running) if running else []
        if forgiving and ended:
            over = {one.process for one in ended}
            still = [one for one in self.standing.running if one.process not in over]
            self.standing, ended = replace(self.standing, running=still), []
        report = await go_round(
            Round(self.name, self.plan, target, self.standing, now, ended, [*at_once], bool(self.paused))
        )
        self.standing = report.standing
        self.started += len(report.started)
        self.skipped += report.skipped
        self.missed += report.missed
        self.paused = self.paused or report.stop
        self.recent = [*self.recent, *report.started][-RECENT:]
        return report

    def _wait(self) -> None:
        if self.standing.due is None:
            suspend()
        else:
            schedule(moment(self.standing.due))


def _now() -> int:
    return turn_for("a schedule").now
