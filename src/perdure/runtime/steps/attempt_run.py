"""An attempt run: one attempt of one step under way, what the step may know of it, and its deadline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from perdure import limits
from perdure.authoring.step import Attempt
from perdure.authoring.task import QueueWork
from perdure.errors import DefinitionError, PayloadTooLarge, StepOutcomeUnknown
from perdure.kernel import payload
from perdure.runtime import compensation
from perdure.runtime.steps.isolated.pool import HardCall
from perdure.runtime.steps.threads import ThreadCall, Threads
from perdure.turns.loop import Ask

if TYPE_CHECKING:
    from perdure.kernel.failure import Failure
    from perdure.kernel.message import Message
    from perdure.kernel.retry import FailedAttempt
    from perdure.runtime.instance import Instance
    from perdure.store.step_transaction import StepTransaction
    from perdure.telemetry import Telemetry


class LeaseLapsed(Exception):
    """The lease was over before the step's function was called: nothing was tried."""


class StepListener(Protocol):
    """Gets what becomes of the steps of the processes held here; it is called on the event loop only."""

    def feed(self, instance: Instance, /) -> None:
        """A step has an answer, which was delivered: the next turn hears it."""

    def step_failed(self, instance: Instance, ask: Ask[Any], failure: Failure) -> None:
        """A step has no attempt left."""

    def step_tried(self, instance: Instance, ask: Ask[Any], tried: FailedAttempt) -> None:
        """An attempt has failed, and another will follow."""

    def step_due(self, instance: Instance, ask: Ask[Any]) -> None:
        """The wait before an attempt has passed."""

    def step_begins(self, attempt: AttemptRun) -> None:
        """A step that runs at most once would begin: it may, once that is written."""

    def undo_due(self, instance: Instance, undo: Ask[Any]) -> None:
        """An undo that waits in a queue may be asked for."""

    def step_shown(self, attempt: AttemptRun, name: str, raw: bytes) -> None:
        """An attempt has published a value."""

    def stuck(self, instance: Instance, error: Exception) -> None:
        """A defect keeps a process from going on: it must not be left held here."""

    def came_late(self, attempt: AttemptRun, value: Any) -> None:
        """An attempt that was given up has returned this value."""

    def lease_lapsed(self, instance: Instance) -> object:
        """The lease of a process was over before a step of it could begin or go on."""

    def step_refused(self, instance: Instance) -> None:
        """The result of a transactional step was refused, with its effect: the process is another worker's."""

    def step_kept(self, instance: Instance, message: Message | None) -> None:
        """The result of a transactional step is in the inbox, as this message or (None) that of an earlier attempt."""


class Runner(Protocol):
    """What runs attempts, as the attempts see it: the agent of a worker; ``thread`` is that of its event ``loop``."""

    loop: asyncio.AbstractEventLoop
    thread: int
    listener: StepListener
    telemetry: Telemetry
    engine: Any
    enter: Callable[[Callable[[], Attempt]], object]

    @property
    def threads(self) -> Threads:
        """Where ordinary functions run."""

    def began(self, attempt_run: AttemptRun) -> None:
        """An attempt begins, and its time with it."""

    def call(self, attempt_run: AttemptRun) -> None:
        """Run an attempt where its step runs, unless it has to wait for something."""

    def wait(self, instance: Instance, ask: Ask[Any], at: int, seconds: float, breaker: str | None = None) -> None:
        """Begin a step again after so many seconds, which is ``at`` by the store's clock."""

    def failed(self, attempt_run: AttemptRun, error: BaseException) -> None:
        """An attempt has raised, or could not begin."""

    def silence(self, attempt_run: AttemptRun) -> None:
        """Cancel an attempt that no longer counts."""

    def silenced(self, attempt_run: AttemptRun) -> bool:
        """Whether the answer of an attempt comes too late; if not, no other answer of it counts."""

    def succeeded(self, attempt_run: AttemptRun) -> None:
        """An attempt has brought a result."""

    def late_for(self, attempt_run: AttemptRun) -> bool:
        """Whether the lease of an attempt is over; asked in any thread."""

    def held_up_by(self, attempt_run: AttemptRun) -> Callable[[], bool] | None:
        """A function that tells whether an attempt still cannot begin; None unless it waits for a shortage to end."""


class AttemptRun:
    """One attempt of one step, under way. After :meth:`stop` or its deadline nothing of it counts.

    It may take ``timeout`` seconds, and as long again after each heartbeat. ``opened`` is that of a probe's circuit.
    """

    opened = 0

    __slots__ = (
        "__weakref__",
        "agent",
        "ask",
        "attempt",
        "call",
        "deadline",
        "extending",
        "hard_call",
        "instance",
        "number",
        "over",
        "since",
        "started",
        "task",
        "timeout",
        "timer",
        "told",
        "transaction",
        "unshown",
    )  # fmt: skip

    def __init__(self, agent: Runner, instance: Instance, ask: Ask[Any], number: int, since: int) -> None:
        self.agent = agent
        self.instance = instance
        self.ask = ask
        self.number = number
        self.since = since
        self.timeout = ask.step.timeout
        self.over = False
        self.extending = False
        self.told: Any = None
        self.unshown: deque[tuple[str, bytes]] | None = None
        self.task: asyncio.Task[None] | None = None
        self.call: ThreadCall | None = None
        self.hard_call: HardCall | None = None
        self.transaction: StepTransaction | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.started = 0.0
        self.deadline = inf
        self.attempt: Attempt | None = None

    def current(self) -> Attempt:
        """What the step may know about this attempt; made when it asks for it."""
        if self.attempt is None:
            instance, ask, this = self.instance, self.ask, ref(self)
            key = instance.idempotency_key(ask)
            self.attempt = Attempt(
                process=instance.process,
                step=ask.name,
                number=self.number,
                idempotency_key=key,
                extend=partial(_extend, this),
                left=partial(_left, this),
                last_progress=instance.steps.last_progress(ask),
                undoes=compensation.key_undone(instance, ask),
                connection=None if self.transaction is None else self.transaction.connection,
                show=partial(_publish, this),
                engine=self.agent.engine,
                context=instance.loop.context,
            )
        return self.attempt

    def stop(self) -> None:
        """Cancel this attempt and ignore its answer: its process was dropped, or its code no longer wants it."""
        self.over = True
        self.agent.silence(self)

    def cut_off(self, error: BaseException) -> BaseException:
        """The error of this attempt, which has not answered: a step that runs at most once may have been done."""
        if self.ask.step.at_most_once and self.started:
            return StepOutcomeUnknown(f"it is not known whether it was done: {error}")
        return error

    def left(self) -> float:
        """Seconds until the deadline of this attempt."""
        return self.deadline - self.agent.loop.time()

    def report(self) -> dict[str, Any]:
        """What the row shows: the attempt's number and time, the seconds it may take (rule 14), what it reported.

        Of a step in a thread that is what it had reported before it published what has not come here yet.
        """
        attempt = self.attempt
        reported = self.instance.steps.last_progress(self.ask) if attempt is None else attempt.last_progress
        if self.unshown is not None:
            self.told = reported = self.told if self.unshown else reported
        return {"attempt": self.number, "since": self.since, "timeout": self.timeout, "reported": reported}

    def extend(self) -> None:
        """A heartbeat, from any thread: the step's time starts again."""
        if get_ident() == self.agent.thread:
            self.deadline = self.agent.loop.time() + self.timeout
        elif not self.extending:
            self.extending = True  # one request at a time, however often a thread beats
            self.agent.loop.call_soon_threadsafe(self._extend_here)

    def _extend_here(self) -> None:
        self.extending = False
        self.extend()

    def publish(self, name: str, raw: bytes) -> None:
        """Publish a value, from any thread; raises DefinitionError if no reader could find it."""
        if isinstance(self.instance.workflow, QueueWork):
            raise DefinitionError(
                "a queued step is a process of its own, and no reader would find values there. Return the value, and "
                "publish it in the workflow."
            )
        if len(self.instance.events) >= limits.PUBLISHED_RECORDS:
            raise PayloadTooLarge(
                f"{limits.PUBLISHED_RECORDS:,} values wait to be written. Put several into one, or let the step await "
                "something now and then."
            )
        agent = self.agent
        if get_ident() == agent.thread:
            agent.listener.step_shown(self, name, raw)
        else:
            if self.unshown is None:
                self.told, self.unshown = self.current().last_progress, deque()
            self.unshown.append((name, raw))
            agent.loop.call_soon_threadsafe(self._show)

    def _show(self) -> None:
        assert self.unshown is not None
        self.agent.listener.step_shown(self, *self.unshown.popleft())

    def held_up(self) -> Callable[[], bool] | None:
        """A function that tells whether this attempt still cannot begin; None unless it waits for a shortage to end."""
        return self.agent.held_up_by(self)

    def heard(self, progress: bytes) -> None:
        """A heartbeat from a cell, with what the step has reported last."""
        self.current().last_progress = payload.decode(progress)
        self.extend()


# What an attempt has of its run: if they held each other, only the collector could free both, and the process with
# them. A run is there until its function has ended, whatever the code keeps of its attempt.


def _extend(this: ref[AttemptRun]) -> None:
    if (run := this()) is not None:
        run.extend()


def _left(this: ref[AttemptRun]) -> float:
    return 0.0 if (run := this()) is None else run.left()


def _publish(this: ref[AttemptRun], name: str, raw: bytes) -> None:
    if (run := this()) is not None:
        run.publish(name, raw)
