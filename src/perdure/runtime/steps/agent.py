"""The agent: runs steps, each attempt until its answer or its deadline, and reports nothing of it after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.authoring.step import ATTEMPT, Attempt
from perdure.errors import StepCrashed
from perdure.kernel.event import EventType
from perdure.kernel.failure import answered
from perdure.runtime.open_steps import Waiting
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.async_runner import AsyncRunner
from perdure.runtime.steps.attempt_run import AttemptRun, LeaseLapsed, StepListener
from perdure.runtime.steps.isolated.pool import ChildPool, HardCall
from perdure.runtime.steps.isolated.protocol import StepEnded, StepRaised, order
from perdure.runtime.steps.lingering import Lingering
from perdure.runtime.steps.next_attempt import anew, planned, record
from perdure.runtime.steps.pacing import Pacing
from perdure.runtime.steps.put_off import PutOff
from perdure.runtime.steps.threads import ThreadCall, Threads
from perdure.runtime.steps.transactional import TransactionalSteps
from perdure.turns.loop import Ask
from perdure.turns.saga import UndoAsk

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.parts import WorkerParts

_COMPLETED = EventType.STEP_COMPLETED
PATROLLED_SECONDS = 30.0
"""Timeouts from this length on are checked by a patrol, shorter ones by a timer of their own."""
PATROL_SECONDS = 0.5


class Agent:
    """Runs attempts on the event loop (async steps), in threads (sync ones) or in cells (hard ones); retries by policy.

    Its ``listener`` is told what becomes of the steps. ``enter`` is called in the context of each attempt.
    """

    enter: Callable[[Callable[[], Attempt]], object] = staticmethod(ATTEMPT.set)

    def __init__(self, parts: WorkerParts, listener: StepListener, shortages: Shortages) -> None:
        self.listener = listener
        self.telemetry = parts.telemetry
        self.alerts = parts.alerts
        self.engine = parts.engine
        self.time = parts.time
        self.machine = machine = parts.machine
        self.shortages = shortages
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self._ticks = machine.ticks
        self._async_runner = AsyncRunner(self.loop, self._completed, self.failed, self._lapse, self._ticks, self.enter)
        self.pool = ChildPool(parts.registry.sources, parts.telemetry, parts.options.cells, machine, shortages)
        self.transactional_steps = TransactionalSteps(parts.store, machine, self)
        self._threads: Threads | None = None
        self._running: dict[AttemptRun, None] = {}  # in the order of their beginning
        self._lingering = Lingering(self.loop)
        self.pacing = Pacing(parts, self)
        self.succeeded = self.pacing.succeeded
        self.put_off = PutOff(parts, self, shortages, self._begin_again)
        self._silent: set[asyncio.Future[Any]] = set()
        self._patrol: asyncio.TimerHandle | None = None

    def begin(self, instance: Instance, ask: Ask[Any]) -> None:
        """Start the next attempt of a step, now or when its retry is due."""
        slot = ask.slot
        steps = instance.steps
        tried = steps.attempts.get(slot)
        if tried is None:
            attempt_run = AttemptRun(self, instance, ask, 1, self.time.last)
        elif (delay := self.pacing.delay(instance, ask, tried)) > 0:
            self.wait(instance, ask, steps.attempts[slot].retry_at, delay)
            return
        else:
            attempt_run = AttemptRun(self, instance, ask, tried.attempt + 1, tried.since)
            attempt_run.timeout = max(tried.timeout, ask.step.timeout)
        steps.begin(slot, attempt_run)
        step = ask.step
        if step.is_async and not (step.prepared or type(ask) is UndoAsk):  # as most are
            self.began(attempt_run)
            self._async_runner.put(attempt_run)
        else:
            self.call(attempt_run)

    def wait(self, instance: Instance, ask: Ask[Any], at: int, seconds: float, breaker: str | None = None) -> None:
        """Begin a step again after so many seconds, which is ``at`` by the store's clock."""
        timer = self.loop.call_later(seconds, self._retry, instance, ask)
        instance.steps.wait(ask.slot, Waiting(timer, at, breaker))

    def call(self, attempt_run: AttemptRun) -> None:
        """Run an attempt where its step runs, unless it has to wait for something."""
        ask = attempt_run.ask
        if type(ask) is UndoAsk and self._waits(attempt_run, ask):
            return
        if ask.step.away:
            self.loop.call_soon(self.listener.undo_due, attempt_run.instance, ask)
        elif ask.step.at_most_once and (probe := attempt_run.instance.steps.take_announced(ask.slot)) is not None:
            self._run(self.pacing.announced(attempt_run, probe))
        elif ask.step.breaker is not None and self.pacing.bars(attempt_run):
            return
        elif ask.step.at_most_once:
            self.loop.call_soon(self.listener.step_begins, attempt_run)
        else:
            self._run(attempt_run)

    def _run(self, attempt_run: AttemptRun) -> None:
        ask = attempt_run.ask
        if ask.step.transaction:
            self.transactional_steps.begin(attempt_run)
        elif ask.step.is_async:
            self.began(attempt_run)
            self._async_runner.put(attempt_run)
        elif ask.step.hard is None:
            self._call_in_thread(attempt_run)
        else:
            self._call_in_cell(attempt_run)

    def _waits(self, attempt_run: AttemptRun, undo: UndoAsk) -> bool:
        """Whether an undo must not be called now: it is unfit, or an attempt of its process has not ended yet."""
        if undo.unfit is not None:
            self.loop.call_soon(self.failed, attempt_run, undo.unfit)
            return True
        self._lingering.before_undo(attempt_run.instance)
        return self._lingering.hold(attempt_run.instance.process.id, partial(self._go_on, attempt_run))

    def _go_on(self, attempt_run: AttemptRun) -> None:
        if not attempt_run.over:
            self.call(attempt_run)

    def began(self, attempt_run: AttemptRun) -> None:
        """An attempt begins, and its time with it."""
        self.telemetry.counters["steps"] += 1
        self._running[attempt_run] = None
        seconds = attempt_run.timeout
        attempt_run.started = self.loop.time()
        attempt_run.deadline = attempt_run.started + seconds
        if seconds < PATROLLED_SECONDS:
            attempt_run.timer = self.loop.call_at(attempt_run.deadline, self._deadline, attempt_run)
        elif self._patrol is None:
            self._patrol = self.loop.call_later(PATROL_SECONDS, self._look)

    def silence(self, attempt_run: AttemptRun) -> None:
        """Cancel an attempt that no longer counts, and keep track of it until it has ended."""
        self._let_go(attempt_run)
        under_way = attempt_run.started and (
            attempt_run.task or attempt_run.call or attempt_run.hard_call or attempt_run.transaction
        )
        if under_way and attempt_run.instance.loop.saga is not None:
            self._lingering.add(attempt_run)
        if attempt_run.call is not None:
            self.threads.give_up(attempt_run.call)
        if attempt_run.ask.step.transaction:
            self.transactional_steps.give_up(attempt_run)
        if attempt_run.hard_call is not None:
            taken_back = not attempt_run.instance.gone and attempt_run.left() > 0.001
            self.pool.give_up(attempt_run.hard_call, gently=taken_back)
        task = attempt_run.task
        if task is not None and not task.done():
            self._silent.add(task)
            task.add_done_callback(self._silent.discard)
            task.cancel()
        attempt_run.task = attempt_run.call = attempt_run.hard_call = None  # they know us, as in `silenced`

    def _retry(self, instance: Instance, ask: Ask[Any]) -> None:
        instance.steps.wait(ask.slot, None)
        if not instance.gone:
            self.listener.step_due(instance, ask)

    def retry_now(self, instance: Instance) -> None:
        """Begin the due retries of a process: the store's time was put forward."""
        now = self.time.now()
        steps = instance.steps
        for slot, waiting in list(steps.retries.items()):
            if waiting.at <= now:
                waiting.timer.cancel()
                self._retry(instance, instance.loop.open[slot])

    def _ended(self, attempt_run: AttemptRun, result: bytes | None, error: BaseException | StepRaised | None) -> None:
        """An attempt has answered or failed: the answer counts, or the policy plans the next attempt."""
        instance, ask = attempt_run.instance, attempt_run.ask
        if instance.gone:
            return
        if error is None:
            instance.deliver(_COMPLETED, ask, result, ours=True)
            self.listener.feed(instance)
            if self.pacing.heeding:
                self.succeeded(attempt_run)
            return
        instance.steps.end(ask.slot)
        try:
            self._failed(attempt_run, error)
        except Exception as defect:  # of ours, or of a class of the application's: nothing of the step is under way now
            self.listener.stuck(instance, defect)
        self._lingering.ended_by_itself(attempt_run)

    def _failed(self, attempt_run: AttemptRun, error: BaseException | StepRaised) -> None:
        """An attempt has failed: put it off, plan the next one, or let the step fail; then tell people."""
        if not isinstance(error, StepRaised) and self.put_off.take(attempt_run, error):
            return
        instance, ask = attempt_run.instance, attempt_run.ask
        process = instance.process
        self.telemetry.counters["step_failures"] += 1
        failure = error.failure if isinstance(error, StepRaised) else ask.step.failure(error, attempt_run.number)
        failure = failure.on(self.machine.name())
        # The history is ahead of a clock that was set back: a retry follows its failure there too.
        now = max(self.time.now(), instance.at)
        plan = planned(attempt_run, error, now, self.machine.random)
        self.pacing.failed(attempt_run, error, failure)
        tried = record(attempt_run, plan, failure, now)
        if tried is None:
            self.listener.step_failed(instance, ask, failure)
        else:
            instance.steps.keep(ask, attempt_run)
            self.listener.step_tried(instance, ask, tried)
        self.alerts.attempt_failed(process, ask, failure, plan)

    def _begin_again(self, attempt_run: AttemptRun) -> None:
        attempt_run.timer = None
        self.put_off.pop(attempt_run, None)
        if not attempt_run.over:
            if attempt_run.ask.step.at_most_once:
                self._run(attempt_run)  # its beginning is written
            else:
                self.call(attempt_run)

    def held_up(self) -> bool:
        """Whether some step may have to wait long before it can begin here."""
        if self.put_off or (self._threads is not None and self._threads.held_up()):
            return True
        return self.pool.held_up()

    def held_up_by(self, attempt_run: AttemptRun) -> Callable[[], bool] | None:
        """A function that tells whether an attempt still cannot begin; None unless it waits for a shortage to end."""
        if attempt_run.ask.step.at_most_once:
            return None  # its beginning is written: it begins here or never
        if attempt_run in self.put_off:
            ask = attempt_run.ask
            since = self.shortages.put_off_for((attempt_run.instance.process.id, ask.name, ask.place))
            return (lambda: False) if since >= limits.SHORTAGE_WAIT_SECONDS else None
        if attempt_run.call is not None:
            key = attempt_run.call.key
            if self.threads.held_up(key):
                return lambda: self.threads.held_up(key)
        elif attempt_run.hard_call is not None and self.pool.held_up():
            return self.pool.held_up
        return None

    async def close(self) -> None:
        """Cancel what still runs and wait a moment for it; threads cannot be stopped, only left behind."""
        for attempt_run in list(self._running):
            attempt_run.stop()
        if self._patrol is not None:
            self._patrol.cancel()
        if self._silent:
            await asyncio.wait(list(self._silent), timeout=1.0)
        await self.pacing.circuits.close()
        await self.transactional_steps.close()
        if self._threads is not None:
            self._threads.close()
        await self.pool.close()

    @property
    def threads(self) -> Threads:
        """Where ordinary functions run; made when the first is called."""
        if self._threads is None:
            self._threads = Threads(self.loop, self.machine, self.shortages)
        return self._threads

    def _call_in_thread(self, attempt_run: AttemptRun) -> None:
        ask = attempt_run.ask
        context = copy_context()
        context.run(self.enter, attempt_run.current)

        def ended(value: Any, error: BaseException | None) -> None:
            attempt_run.call = None  # it knows us
            if error is None:
                self._completed(attempt_run, value)
            else:
                self.failed(attempt_run, error)

        attempt_run.call = ThreadCall(
            partial(self._in_time, attempt_run, partial(context.run, ask.step.function, *ask.args, **ask.kwargs)),
            partial(self.began, attempt_run),
            ended,
            ask.step,
        )
        self.threads.call(attempt_run.call)

    def late_for(self, attempt_run: AttemptRun) -> bool:
        """Whether the lease of an attempt is over; asked in any thread, where a running function cannot be stopped."""
        return attempt_run.instance.lease_end <= self._ticks()

    def _in_time(self, attempt_run: AttemptRun, function: Callable[[], Any]) -> Any:
        if self.late_for(attempt_run):
            raise LeaseLapsed
        return function()

    def _lapse(self, attempt_run: AttemptRun) -> None:
        """No attempt acts on a lease that is over: this worker froze, and the lease guard has not looked yet."""
        if not attempt_run.instance.gone:
            self.listener.lease_lapsed(attempt_run.instance)

    def _refused(self, attempt_run: AttemptRun) -> None:
        """An attempt did not begin, since its lease was over. It begins now if that was renewed meanwhile."""
        self._lapse(attempt_run)
        if not (attempt_run.over or attempt_run.instance.gone or self.silenced(attempt_run)):
            self._run(self.pacing.announced(anew(attempt_run), attempt_run.opened))

    def _call_in_cell(self, attempt_run: AttemptRun) -> None:
        def ended(answer: StepEnded | StepCrashed) -> None:
            attempt_run.hard_call = None  # it knows us
            if isinstance(answer, StepCrashed):  # the cell of a stopped attempt was killed: that is no late answer
                self.failed(attempt_run, asyncio.CancelledError() if attempt_run.over else attempt_run.cut_off(answer))
            elif not self.silenced(attempt_run):
                if isinstance(answer, StepRaised):
                    self._ended(attempt_run, None, answer)
                else:
                    self._ended(attempt_run, bytes(answer.result), None)

        ordered = order(attempt_run.ask.step, attempt_run.ask.raw, attempt_run.current(), attempt_run.timeout)
        began, late = partial(self.began, attempt_run), partial(self.late_for, attempt_run)
        call = HardCall(ordered, began, attempt_run.heard, ended, late, partial(self._refused, attempt_run))
        attempt_run.hard_call = call
        self.pool.call(call)

    def _completed(self, attempt_run: AttemptRun, value: Any) -> None:
        if self.silenced(attempt_run):
            self.listener.came_late(attempt_run, value)
            return
        try:
            result = attempt_run.ask.step.shape.encode_result(value)
        except (ValueError, MemoryError) as error:
            self._ended(attempt_run, None, error)
        else:
            self._ended(attempt_run, result, None)

    def failed(self, attempt_run: AttemptRun, error: BaseException) -> None:
        """An attempt has raised, or could not begin."""
        if isinstance(error, LeaseLapsed):
            self._refused(attempt_run)
            self._lingering.ended(attempt_run)  # also if it was told to stop only now, with its process
            return
        if attempt_run.over and isinstance(error, asyncio.CancelledError):
            self._lingering.ended(attempt_run)
            return  # it was cancelled, and has ended
        if self.silenced(attempt_run):
            return
        self._ended(attempt_run, None, answered(error))

    def silenced(self, attempt_run: AttemptRun) -> bool:
        """Whether the answer of an attempt comes too late; if not, no other answer of it counts."""
        if attempt_run.over:
            self.telemetry.counters["late_results"] += 1
            self._lingering.ended(attempt_run)
            return True
        attempt_run.over = True
        attempt_run.task = None  # its context knows us: left in place, only the collector could free both
        self._let_go(attempt_run)
        return False

    def _let_go(self, attempt_run: AttemptRun) -> None:
        """Stop tracking an attempt: its timer would keep the whole process in memory until it fires."""
        self._running.pop(attempt_run, None)
        if self.put_off:
            self.put_off.pop(attempt_run, None)
        if attempt_run.timer is not None:
            attempt_run.timer.cancel()
            attempt_run.timer = None

    def _look(self) -> None:
        """Check the attempts with long deadlines, all at once: a timer for each would cost every step."""
        now = self.loop.time()
        for attempt_run in [attempt_run for attempt_run in self._running if attempt_run.deadline <= now]:
            self._deadline(attempt_run)
        self._patrol = self.loop.call_later(PATROL_SECONDS, self._look) if self._running else None

    def _deadline(self, attempt_run: AttemptRun) -> None:
        """At its deadline an attempt is cancelled and falls silent, unless heartbeats have moved the deadline."""
        if attempt_run.over:
            return
        if attempt_run.deadline > self.loop.time() + 0.001:
            attempt_run.timer = self.loop.call_at(attempt_run.deadline, self._deadline, attempt_run)
            return
        if attempt_run.transaction is not None and not attempt_run.transaction.abandon():
            return  # it is being committed: the outcome of that counts
        self.telemetry.counters["step_timeouts"] += 1
        seconds = self.loop.time() - attempt_run.started
        attempt_run.stop()
        error = TimeoutError(f"the attempt ran over its deadline after {seconds:.3g} s")
        self._ended(attempt_run, None, attempt_run.cut_off(error))
