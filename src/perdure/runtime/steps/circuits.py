"""Circuits: what a worker knows of the breakers that its steps name, and what it tells the store about them.

The rows are read before an attempt, once a second at most, and not at all while no step names a breaker. A success
costs nothing unless it was a probe. What has happened meanwhile is written together, and only over the version that
was read: if another worker was quicker, it is decided again. If the store cannot be asked, attempts are made.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, in_seconds, microseconds
from perdure.errors import StepCrashed, StoreError, Unavailable
from perdure.kernel.breaker import OPEN, Breaker, Circuit, News, Probed, Reported
from perdure.kernel.retry import HOPELESS
from perdure.logs import logger
from perdure.runtime.open_steps import Slot
from perdure.runtime.steps.attempt_run import AttemptRun, Runner
from perdure.runtime.steps.isolated.protocol import StepRaised
from perdure.turns.saga import UndoAsk

if TYPE_CHECKING:
    from perdure.kernel.failure import Failure
    from perdure.runtime.parts import WorkerParts
    from perdure.turns.ask import AskedStep

log = logger("breaker")


class Probe(AttemptRun):
    """An attempt that is made although its breaker is not closed; ``opened`` is that of the circuit when it began."""

    __slots__ = ("opened",)

    def __init__(self, before: AttemptRun, opened: int) -> None:
        super().__init__(before.agent, before.instance, before.ask, before.number, before.since)
        self.timeout = before.timeout
        self.opened = opened


class Circuits:
    """The circuits as last read, the attempts that ask whether they may be made, and the news not written yet.

    An attempt also asks while news of its own breaker are being written: they may open it.
    """

    def __init__(self, parts: WorkerParts, runner: Runner) -> None:
        self._store = parts.store
        self._time = parts.time
        self._machine = parts.machine
        self._telemetry = parts.telemetry
        self._alerts = parts.alerts
        self._settings = parts.breakers
        self._runner = runner
        self._known: dict[str, Circuit] = {}
        self._unanswered: dict[str, tuple[Circuit, Circuit]] = {}  # the circuit as it was, and what was written over it
        self._fresh_until = 0.0
        self._asking: list[AttemptRun] = []
        self._news: dict[str, tuple[Breaker, list[News]]] = {}
        self._telling: set[str] = set()
        self._answered = False  # what is known is as fresh as can be, however long the store has taken to answer
        self._first: dict[str, tuple[int, bytes, Slot]] = {}
        self._mark = parts.incarnation
        self._task: asyncio.Task[None] | None = None
        self._over = False

    @property
    def busy(self) -> bool:
        """Whether the store is being asked or told."""
        return self._task is not None and not self._task.done()

    def closed(self, breaker: Breaker) -> bool:
        """Whether the breaker is closed, as far as is known here."""
        return self._of(breaker.name).closed

    def stop(self, attempt_run: AttemptRun) -> bool:
        """Whether an attempt is not made now: it waits for its breaker, or for what the store says of that."""
        if type(attempt_run) is Probe:
            return False
        breaker = self._breaker(attempt_run)
        telling = breaker.name in self._news or breaker.name in self._telling
        if self._answered or (not telling and self._time.monotonic() < self._fresh_until):
            circuit = self._of(breaker.name)
            if circuit.closed:
                return False
            if breaker.shut(circuit, self._time.now()):
                self._wait(attempt_run, breaker, circuit)
                return True
        self._asking.append(attempt_run)
        self._ask()
        return True

    @staticmethod
    def probe(attempt_run: AttemptRun, opened: int) -> Probe:
        """The attempt as the probe of its breaker's circuit, which opened then."""
        probe = Probe(attempt_run, opened)
        attempt_run.instance.steps.begin(attempt_run.ask.slot, probe)
        return probe

    def ended(self, attempt_run: AttemptRun, error: BaseException | StepRaised | None, failure: Failure | None) -> None:
        """Note what an attempt says of its dependency; with the class of an error, as its text may be a secret."""
        breaker = self._breaker(attempt_run)
        failed = error is not None and blames(attempt_run.ask.step, error)
        told = telling(error) if failed else None
        name = "" if failure is None else failure.type
        if type(attempt_run) is Probe:
            self._note(breaker, Probed(not failed, attempt_run.opened, name, told))
        elif failed:
            self._note(breaker, Reported(1, name, told))

    def _breaker(self, attempt_run: AttemptRun) -> Breaker:
        """The breaker of an attempt that came here because its step has one, with what is set for it by name."""
        return self._settings.applied(cast("Breaker", attempt_run.ask.step.breaker))

    async def close(self) -> None:
        """Ask and tell no more; the circuits are advice."""
        self._over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _note(self, breaker: Breaker, news: News) -> None:
        _, noted = self._news.setdefault(breaker.name, (breaker, []))
        if noted and isinstance(noted[-1], Reported) and isinstance(news, Reported):
            noted[-1] = noted[-1].and_then(news)
        else:
            noted.append(news)
        self._ask()

    def _of(self, name: str) -> Circuit:
        return self._known.get(name) or Circuit(name)

    def _wait(self, attempt_run: AttemptRun, breaker: Breaker, circuit: Circuit) -> None:
        """Have a step wait; nothing is written, and no attempt counts. Its policy's ``total`` may end the wait."""
        instance, ask = attempt_run.instance, attempt_run.ask
        now, until = self._time.now(), circuit.until or 0
        mine = (until, instance.process.id, ask.slot)
        first = self._first.get(circuit.name, mine)
        wait = breaker.wait(circuit, now, self._machine.random(), first=first == mine or first[0] != until)
        if now + wait == until:
            self._first[circuit.name] = mine
        instance.steps.end(ask.slot)
        tried, total = instance.steps.attempts.get(ask.slot), ask.step.retry.total
        if tried is not None and total is not None and type(ask) is not UndoAsk:
            left = tried.since + microseconds(total) - now
            if left <= 0:
                self._runner.listener.step_failed(instance, ask, tried.failure)
                return
            wait = min(wait, left)
        self._telemetry.count("attempts_barred")
        self._runner.wait(instance, ask, now + wait, wait / SECOND, breaker.name)

    def _ask(self) -> None:
        if not (self.busy or self._over):
            self._task = self._runner.loop.create_task(self._exchange(), name="perdure breakers")

    async def _exchange(self) -> None:
        """Tell the store what has happened and ask it what is wanted, until there is nothing more."""
        while self._asking or self._news:
            asking, self._asking = self._asking, []
            news, self._news = self._news, {}
            self._telling = set(news)
            try:
                probes = await self._settled(asking, news)
            except Exception as error:
                probes = self._unasked(asking, error)
            self._telling.clear()
            for attempt_run in asking:  # each by itself: what one of them raises does not keep the others waiting
                self._runner.loop.call_soon(self._go_on, attempt_run, probes.get(attempt_run))

    def _unasked(self, asking: list[AttemptRun], error: Exception) -> dict[AttemptRun, int]:
        """Which attempts are made although the store could not say so: all but those of a breaker known to be open.

        What was to be told is lost; what fails from now on will say the same.
        """
        if isinstance(error, StoreError):
            log.info("the breakers cannot be looked at now, and attempts are made: %s", error)
        else:
            log.error("the breakers cannot be read, and attempts are made; please report it", exc_info=error)
            self._known = {}
        self._fresh_until = self._time.monotonic() + limits.BREAKER_LOOK_SECONDS
        now = self._time.now()
        known = [(one, self._breaker(one), self._of(self._breaker(one).name)) for one in asking]
        return {one: 0 for one, breaker, circuit in known if not (circuit.closed or breaker.shut(circuit, now))}

    def _go_on(self, attempt_run: AttemptRun, probe: int | None) -> None:
        if attempt_run.over or attempt_run.instance.gone:
            return
        instance, ask = attempt_run.instance, attempt_run.ask
        if probe is not None:
            attempt_run = self.probe(attempt_run, probe)
        self._answered = True
        try:
            if probe is not None or self.closed(self._breaker(attempt_run)):
                self._runner.call(attempt_run)
            else:
                instance.steps.end(ask.slot)
                self._runner.listener.step_due(instance, ask)
        finally:
            self._answered = False

    async def _settled(
        self, asking: list[AttemptRun], news: dict[str, tuple[Breaker, list[News]]]
    ) -> dict[AttemptRun, int]:
        """Write what follows from the news, and the probes that may begin; the answer is these, with their circuits."""
        await self._read([])
        granted: dict[AttemptRun, int] = {}
        for _ in range(limits.COMMAND_TRIES):
            left = [one for one in asking if not (one.over or one in granted)]
            changes, probes = self._decided(left, news)
            if changes:
                # If we die here a probe may be under way that no worker makes: it is given up after a while.
                await self._read(changes)
            written = {change.name for change in changes if self._known.get(change.name) == change}
            for name in written:
                news.pop(name, None)
            granted |= {one: opened for one, opened in probes.items() if self._breaker(one).name in written}
            if len(written) == len(changes):
                break
        return granted

    async def _read(self, changes: list[Circuit]) -> None:
        """Write these, read all, and tell of what is found written: now, or before, when the answer was lost."""
        sent = self._time.monotonic()
        self._unanswered |= {change.name: (self._of(change.name), change) for change in changes}
        rows = await self._store.records(Circuit, changes)
        self._known = {row.name: row for row in rows}
        self._fresh_until = sent + limits.BREAKER_LOOK_SECONDS
        unanswered, self._unanswered = self._unanswered, {}
        for was, change in unanswered.values():
            if self._of(change.name) == change:
                self._tell(was, change)

    def _decided(
        self, asking: list[AttemptRun], news: dict[str, tuple[Breaker, list[News]]]
    ) -> tuple[list[Circuit], dict[AttemptRun, int]]:
        now = self._time.now()
        after: dict[str, Circuit] = {}
        probes: dict[AttemptRun, int] = {}
        for name, (breaker, heard) in news.items():
            circuit = self._of(breaker.name)
            for one in heard:
                circuit = breaker.after(circuit, one, now)
            after[name] = circuit
        for attempt_run in asking:
            breaker = self._breaker(attempt_run)
            circuit = after.get(breaker.name) or self._of(breaker.name)
            if (probing := breaker.probing(circuit, now)) is not None:
                after[breaker.name], probes[attempt_run] = probing, probing.opened
        changes = [one for name, one in sorted(after.items()) if one != self._of(name)]
        mark = self._mark.id.hex()
        return [replace(change, version=change.version + 1, worker=mark) for change in changes], probes

    def _tell(self, was: Circuit, circuit: Circuit) -> None:
        """Log a change of state, once over all workers: by the one whose change was written."""
        if was.state == circuit.state:
            return
        self._telemetry.count("breakers_changed")
        if circuit.state == OPEN:
            self._telemetry.breaker_opened(circuit.name)
        if was.closed:
            self._alerts.breaker(circuit)
        level = log.info if circuit.closed else log.warning
        level("%s; it was %s", circuit.text(), was.state, extra=circuit.fields(was))


def blames(step: AskedStep, error: BaseException | StepRaised) -> bool:
    """Whether an error says that the dependency fails: not one that the step declares as an answer, or as lasting."""
    if isinstance(error, StepRaised):
        return error.retries and not (error.failure.declared or error.failure.permanent)
    if isinstance(error, BaseExceptionGroup):
        return any(blames(step, one) for one in error.exceptions)
    never = step.retry.never if isinstance(step.retry.never, tuple) else (step.retry.never,)
    return isinstance(error, Exception) and not isinstance(
        error, (*HOPELESS, *never, *step.raises.values(), StepCrashed)
    )


def telling(error: BaseException | StepRaised | None) -> int | None:
    """For how many microseconds the dependency has said that it cannot serve: 0 if it has not said how long."""
    if isinstance(error, StepRaised):
        return 0 if error.failure.type == Unavailable.__name__ else None
    if not isinstance(error, Unavailable):
        return None
    seconds = in_seconds(getattr(error, "retry_after", None))
    if not isinstance(seconds, int | float) or not 0 < seconds < limits.BREAKER_LONGEST_SECONDS:
        return 0  # it has said nothing, or nothing that can be meant
    return microseconds(seconds)
