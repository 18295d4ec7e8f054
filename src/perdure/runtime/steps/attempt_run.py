"""An attempt run: one attempt of one step under way, what the step may know of it, and its deadline."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any

from perdure.authoring.step import Attempt
from perdure.kernel import payload
from perdure.runtime import compensation, turn_commit
from perdure.runtime.steps.isolated.pool import HardCall
from perdure.runtime.steps.threads import ThreadCall
from perdure.turns.loop import Ask

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.steps.agent import Agent
    from perdure.store.step_transaction import StepTransaction


class LeaseLapsed(Exception):
    """The lease was over before the step's function was called: nothing was tried."""


class AttemptRun:
    """One attempt of one step, under way. After :meth:`stop` or its deadline nothing of it counts."""

    __slots__ = (
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
        "timer",
        "transaction",
    )  # fmt: skip

    def __init__(self, agent: Agent, instance: Instance, ask: Ask[Any], number: int, since: int) -> None:
        self.agent = agent
        self.instance = instance
        self.ask = ask
        self.number = number
        self.since = since
        self.over = False
        self.extending = False
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
            instance, ask = self.instance, self.ask
            key = instance.idempotency_key(ask)
            self.attempt = Attempt(
                process=instance.process,
                step=ask.name,
                number=self.number,
                idempotency_key=key,
                extend=self.extend,
                left=self.left,
                last_progress=instance.last_progress(ask),
                undoes=compensation.key_undone(instance, ask),
                connection=None if self.transaction is None else self.transaction.connection,
                show=partial(turn_commit.show, self),
            )
        return self.attempt

    def stop(self) -> None:
        """Silence this attempt and cancel it: its process was dropped, or its code wants it no more."""
        self.over = True
        self.agent.silence(self)

    def left(self) -> float:
        """Seconds until the deadline of this attempt."""
        return self.deadline - self.agent.loop.time()

    def report(self) -> dict[str, Any]:
        """What the row shows: the attempt's number and time, the seconds it may take (rule 14), what it reported."""
        attempt = self.attempt
        reported = self.instance.last_progress(self.ask) if attempt is None else attempt.last_progress
        timeout = self.ask.step.timeout
        return {"attempt": self.number, "since": self.since, "timeout": timeout, "reported": reported}

    def extend(self) -> None:
        """A heartbeat, from whichever thread: the step's time starts again."""
        if get_ident() == self.agent.thread:
            self.deadline = self.agent.loop.time() + self.ask.step.timeout
        elif not self.extending:
            self.extending = True  # one request at a time, however often a thread beats
            self.agent.loop.call_soon_threadsafe(self._extend_here)

    def _extend_here(self) -> None:
        self.extending = False
        self.extend()

    def heard(self, progress: bytes) -> None:
        """A heartbeat from a cell, with what the step has reported last."""
        self.current().last_progress = payload.decode(progress)
        self.extend()
