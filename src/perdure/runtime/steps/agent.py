"""The agent: runs steps, each attempt until its answer or its deadline, and never says a word after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.step import ATTEMPT
from perdure.clock import SECOND, Machine, microseconds
from perdure.errors import StepCrashed
from perdure.exhaustion import exhausted_in_step
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure, answered
from perdure.kernel.process import Process
from perdure.kernel.retry import FailedAttempt
from perdure.runtime import failure_log
from perdure.runtime.compensation import Lingering
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.async_runner import Relay
from perdure.runtime.steps.attempt_run import Execution, LeaseLapsed
from perdure.runtime.steps.budget import Budgets
from perdure.runtime.steps.isolated.pool import Cells, HardCall
from perdure.runtime.steps.isolated.protocol import Answer, Failed, order
from perdure.runtime.steps.threads import Call, Threads
from perdure.runtime.store_time import StoreTime
from perdure.telemetry import Telemetry
from perdure.turns.loop import Ask
from perdure.turns.saga import UndoAsk

if TYPE_CHECKING:
    from perdure.runtime.instance import Activation
    from perdure.runtime.steps.transactional import Notary

_COMPLETED = EventType.STEP_COMPLETED

PATROLLED_SECONDS = 30.0
"""Deadlines from this length on are looked after by a patrol, shorter ones by a timer of their own."""
PATROL_SECONDS = 0.5


class Agent:
    """Runs attempts on the event loop (async steps), in threads (sync ones) or in cells (hard ones); retries by policy.

    ``answered`` is told of a step that is over, ``tried`` of a failed attempt that another will follow, ``due`` that
    the wait before an attempt has passed, ``queued`` that an undo may begin which waits in a queue,
    ``late`` of a value that comes after its attempt was given up, ``refused`` of what a late commit would have left,
    ``shown`` of a value that an attempt publishes, ``lapsed`` of a process whose lease was over before a step of it
    could begin or go on.
    """

    def __init__(self, telemetry: Telemetry, time: StoreTime, machine: Machine) -> None:
        self.telemetry = telemetry
        self.time = time
        self.machine = machine
        self.shortages = Shortages(telemetry, machine.monotonic)
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.answered: Callable[[Activation, EventType, Ask[Any], bytes | None], None]
        self.tried: Callable[[Activation, Ask[Any], FailedAttempt], None]
        self.due: Callable[[Activation, Ask[Any]], None]
        self.queued: Callable[[Activation, Ask[Any]], None]
        self.late: Callable[[Execution, Any], None] = lambda execution, value: None
        self.refused: Callable[[Process], None] = lambda after: None
        self.shown: Callable[[Execution, str, bytes], None]
        self.lapsed: Callable[[Activation], object]
        self._ticks = machine.ticks
        self._relay = Relay(self.loop, self._completed, self.failed, self._lapse, self._ticks)
        self.cells: Cells | None = None
        self.notary: Notary | None = None
        self._threads: Threads | None = None
        self._running: dict[Execution, None] = {}  # in the order of their beginning
        self._lingering = Lingering(self.loop)
        self._budgets = Budgets()
        self.put_off: dict[Execution, None] = {}  # attempts that wait for a shortage to end
        self._silent: set[asyncio.Future[Any]] = set()
        self._patrol: asyncio.TimerHandle | None = None

    def begin(self, activation: Activation, ask: Ask[Any]) -> None:
        """Start the next attempt of a step, now or when its retry is due."""
        slot = (ask.name, ask.place)
        tried = activation.attempts.get(slot)
        if tried is None:
            execution = Execution(self, activation, ask, 1, self.time.last)
        elif (delay := self._delay(activation, ask, tried)) > 0:
            activation.wait(slot, self.loop.call_later(delay, self._retry, activation, ask))
            return
        else:
            execution = Execution(self, activation, ask, tried.attempt + 1, tried.since)
        activation.in_flight[slot] = execution
        step = ask.step
        if step.is_async and not (step.away or step.transaction or type(ask) is UndoAsk):  # as most are
            self.began(execution)
            self._relay.put(execution)
        else:
            self._call(execution)

    def _delay(self, activation: Activation, ask: Ask[Any], tried: FailedAttempt) -> float:
        """Seconds until the next attempt may begin, by what its failure has planned and by the step's budget."""
        now = self.time.now()
        if tried.retry_at > now:
            return (tried.retry_at - now) / SECOND
        delay = self._budgets.wait(ask.step, tried, now, self.loop.time(), self.machine.random)
        if delay > 0:
            self.telemetry.counters["retries_put_off"] += 1
            activation.tried((ask.name, ask.place), replace(tried, retry_at=now + microseconds(delay)))
        return delay

    def _call(self, execution: Execution) -> None:
        ask = execution.ask
        if type(ask) is UndoAsk and self._waits(execution, ask):
            return
        if ask.step.away:
            self.loop.call_soon(self.queued, execution.activation, ask)
        elif ask.step.transaction and self.notary is not None:
            self.notary.begin(execution)
        elif ask.step.is_async:
            self.began(execution)
            self._relay.put(execution)
        elif ask.step.hard is None:
            self._call_in_thread(execution)
        else:
            self._call_in_cell(execution)

    def _waits(self, execution: Execution, undo: UndoAsk) -> bool:
        """Whether an undo is not to be called now: it cannot be, or an attempt of its process has yet to end."""
        if undo.unfit is not None:
            self.loop.call_soon(self.failed, execution, undo.unfit)
            return True
        return self._lingering.hold(execution.activation.process.id, partial(self._go_on, execution))

    def _go_on(self, execution: Execution) -> None:
        if not execution.over:
            self._call(execution)

    def began(self, execution: Execution) -> None:
        """An attempt begins, and its time with it."""
        self.telemetry.counters["steps"] += 1
        self._running[execution] = None
        seconds = execution.ask.step.timeout
        execution.started = self.loop.time()
        execution.deadline = execution.started + seconds
        if seconds < PATROLLED_SECONDS:
            execution.timer = self.loop.call_at(execution.deadline, self._deadline, execution)
        elif self._patrol is None:
            self._patrol = self.loop.call_later(PATROL_SECONDS, self._look)

    def silence(self, execution: Execution) -> None:
        """Cancel an attempt that counts no more, and keep hold of it until it has ended."""
        self._let_go(execution)
        under_way = execution.started and (execution.task or execution.call or execution.hard_call or execution.pact)
        if under_way and execution.activation.loop.saga is not None:
            self._lingering.add(execution)
        if execution.call is not None:
            self.threads.give_up(execution.call)
        if execution.ask.step.transaction and self.notary is not None:
            self.notary.give_up(execution)
        if execution.hard_call is not None and self.cells is not None:
            taken_back = not execution.activation.gone and execution.left() > 0.001
            self.cells.give_up(execution.hard_call, gently=taken_back)
        task = execution.task
        if task is not None and not task.done():
            self._silent.add(task)
            task.add_done_callback(self._silent.discard)
            task.cancel()

    def _retry(self, activation: Activation, ask: Ask[Any]) -> None:
        activation.retries.pop((ask.name, ask.place), None)
        if not activation.gone:
            self.due(activation, ask)

    def _ended(self, execution: Execution, result: bytes | None, error: BaseException | Failed | None) -> None:
        """An attempt has answered or failed: the answer counts, or the policy plans the next attempt."""
        activation, ask = execution.activation, execution.ask
        activation.in_flight.pop((ask.name, ask.place), None)
        if activation.gone:
            return
        if error is None:
            if self._budgets:
                self.succeeded(ask)
            self.answered(activation, _COMPLETED, ask, result)
            return
        if not isinstance(error, Failed) and self._put_off(execution, error):
            return
        self.telemetry.counters["step_failures"] += 1
        failure = error.failure if isinstance(error, Failed) else Failure.of(error, execution.number)
        retry_at = self._retry_at(execution, error)
        seconds = None if retry_at is None else (retry_at - self.time.now()) / SECOND
        failure_log.attempt_failed(activation.process, ask, failure, seconds)
        if retry_at is None:
            self.answered(activation, EventType.STEP_FAILED, ask, failure.encode())
        else:
            activation.keep(ask, execution)
            self.tried(activation, ask, FailedAttempt(execution.number, execution.since, retry_at, failure))

    def _put_off(self, execution: Execution, error: BaseException) -> bool:
        """Try an attempt again, uncounted, that failed for a shortage of this worker; for a while, then it counts."""
        what = exhausted_in_step(error)
        if what is None:
            return False
        activation, ask = execution.activation, execution.ask
        if not self.shortages.patient((activation.process.id, ask.name, ask.place)):
            return False
        self.shortages.refused(what, f"{ask.step}: {error!r:.200}")
        self.telemetry.counters["attempts_put_off"] += 1
        again = Execution(self, activation, ask, execution.number, execution.since)
        activation.in_flight[ask.name, ask.place] = again
        delay = limits.SHORTAGE_AGAIN_SECONDS * (0.5 + self.machine.random())
        again.timer = self.loop.call_later(delay, self._begin_again, again)
        self.put_off[again] = None
        return True

    def _begin_again(self, execution: Execution) -> None:
        execution.timer = None
        self.put_off.pop(execution, None)
        if not execution.over:
            self._call(execution)

    def held_up(self) -> bool:
        """Whether some step may have to wait long before it can begin here."""
        if self.put_off or (self._threads is not None and self._threads.held_up()):
            return True
        return self.cells is not None and self.cells.held_up()

    def succeeded(self, ask: Ask[Any]) -> None:
        """An attempt has brought a result: that pays for a retry of its step."""
        self._budgets.earned(ask.step)

    def _retry_at(self, execution: Execution, error: BaseException | Failed) -> int | None:
        """When the next attempt may begin, or None if the policy gives up."""
        policy = execution.ask.step.retry
        if not (error.retries if isinstance(error, Failed) else policy.retries(error)):
            return None
        # The history is ahead of a clock that was set back: a retry follows its failure there too.
        now = max(self.time.now(), execution.activation.at)
        spent = (now - execution.since) / SECOND
        delay = policy.next_delay(execution.number, spent, self.machine.random())
        return None if delay is None else now + microseconds(delay)

    async def close(self) -> None:
        """Cancel what still runs and wait a moment for it; threads cannot be stopped, only left behind."""
        for execution in list(self._running):
            execution.stop()
        if self._patrol is not None:
            self._patrol.cancel()
        if self._silent:
            await asyncio.wait(list(self._silent), timeout=1.0)
        if self.notary is not None:
            await self.notary.close()
        if self._threads is not None:
            self._threads.close()
        if self.cells is not None:
            await self.cells.close()

    @property
    def threads(self) -> Threads:
        """Where ordinary functions run; made when the first is called."""
        if self._threads is None:
            self._threads = Threads(self.loop, self.machine, self.shortages)
        return self._threads

    def _call_in_thread(self, execution: Execution) -> None:
        ask = execution.ask
        context = copy_context()
        context.run(ATTEMPT.set, execution.current)

        def ended(value: Any, error: BaseException | None) -> None:
            if error is None:
                self._completed(execution, value)
            else:
                self.failed(execution, error)

        execution.call = Call(
            partial(self._in_time, execution, partial(context.run, ask.step.function, *ask.args, **ask.kwargs)),
            partial(self.began, execution),
            ended,
            ask.step,
        )
        self.threads.call(execution.call)

    def late_for(self, execution: Execution) -> bool:
        """Whether the lease of an attempt is over, from whichever thread; what runs there cannot be stopped."""
        return execution.activation.lease_end <= self._ticks()

    def _in_time(self, execution: Execution, function: Callable[[], Any]) -> Any:
        if self.late_for(execution):
            raise LeaseLapsed
        return function()

    def _lapse(self, execution: Execution) -> None:
        """Nobody acts on a lease that is over: this worker froze, and the guard has not looked yet."""
        if not execution.activation.gone:
            self.lapsed(execution.activation)

    def _call_in_cell(self, execution: Execution) -> None:
        def ended(answer: Answer | StepCrashed) -> None:
            if isinstance(answer, StepCrashed):  # when it was told to stop its cell was killed: that is no late answer
                self.failed(execution, asyncio.CancelledError() if execution.over else answer)
            elif not self.silenced(execution):
                if isinstance(answer, Failed):
                    self._ended(execution, None, answer)
                else:
                    self._ended(execution, bytes(answer.result), None)

        assert self.cells is not None
        ordered = order(execution.ask.step, execution.ask.raw, execution.current())
        began, late = partial(self.began, execution), partial(self.late_for, execution)
        execution.hard_call = HardCall(ordered, began, execution.heard, ended, late)
        self.cells.call(execution.hard_call)

    def _completed(self, execution: Execution, value: Any) -> None:
        if self.silenced(execution):
            self.late(execution, value)
            return
        try:
            result = execution.ask.step.shape.encode_result(value)
        except (ValueError, MemoryError) as error:
            self._ended(execution, None, error)
        else:
            self._ended(execution, result, None)

    def failed(self, execution: Execution, error: BaseException) -> None:
        """An attempt has raised, or could not be made."""
        if isinstance(error, LeaseLapsed):
            self._lingering.ended(execution)
            self._lapse(execution)
            return
        if execution.over and isinstance(error, asyncio.CancelledError):
            self._lingering.ended(execution)
            return  # it was told to stop and did
        if self.silenced(execution):
            return
        self._ended(execution, None, answered(error))

    def silenced(self, execution: Execution) -> bool:
        """Whether what an attempt says now is late; if not, it is the last thing that it says."""
        if execution.over:
            self.telemetry.counters["late_results"] += 1
            self._lingering.ended(execution)
            return True
        execution.over = True
        execution.task = None  # a task's context knows the execution: left in place, only the collector could free them
        self._let_go(execution)
        return False

    def _let_go(self, execution: Execution) -> None:
        """Look after an attempt no more: a timer would keep the whole process in memory until it rings."""
        self._running.pop(execution, None)
        if self.put_off:
            self.put_off.pop(execution, None)
        if execution.timer is not None:
            execution.timer.cancel()
            execution.timer = None

    def _look(self) -> None:
        """Look after the attempts with long deadlines, all at once: a timer for each would cost every step."""
        now = self.loop.time()
        for execution in [execution for execution in self._running if execution.deadline <= now]:
            self._deadline(execution)
        self._patrol = self.loop.call_later(PATROL_SECONDS, self._look) if self._running else None

    def _deadline(self, execution: Execution) -> None:
        """At its deadline an attempt is cancelled and falls silent, unless heartbeats have moved the deadline."""
        if execution.over:
            return
        if execution.deadline > self.loop.time() + 0.001:
            execution.timer = self.loop.call_at(execution.deadline, self._deadline, execution)
            return
        if execution.pact is not None and not execution.pact.abandon():
            return  # it is being committed: what becomes of that counts
        self.telemetry.counters["step_timeouts"] += 1
        seconds = self.loop.time() - execution.started
        execution.stop()
        self._ended(execution, None, TimeoutError(f"the attempt ran over its deadline after {seconds:.3g} s"))
