"""An execution: one attempt of one step under way, what the step may know of it, and its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.authoring.step import Attempt
from perdure.authoring.task import QueueWork
from perdure.errors import DefinitionError, PayloadTooLarge
from perdure.kernel import payload
from perdure.runtime import compensation
from perdure.runtime.steps.isolated.pool import HardCall
from perdure.runtime.steps.threads import Call
from perdure.turns.loop import Ask

if TYPE_CHECKING:
    from perdure.runtime.instance import Activation
    from perdure.runtime.steps.agent import Agent
    from perdure.store.step_transaction import Pact


class LeaseLapsed(Exception):
    """The lease was over before the step's function was called: nothing was tried."""


class Execution:
    """One attempt of one step, under way. After :meth:`stop` or its deadline nothing of it counts."""

    __slots__ = (
        "activation", "agent", "ask", "attempt", "call", "deadline", "extending", "hard_call", "number", "over",
        "pact", "since", "started", "task", "timer",
    )  # fmt: skip

    def __init__(self, agent: Agent, activation: Activation, ask: Ask[Any], number: int, since: int) -> None:
        self.agent = agent
        self.activation = activation
        self.ask = ask
        self.number = number
        self.since = since
        self.over = False
        self.extending = False
        self.task: asyncio.Task[None] | None = None
        self.call: Call | None = None
        self.hard_call: HardCall | None = None
        self.pact: Pact | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.started = 0.0
        self.deadline = inf
        self.attempt: Attempt | None = None

    def current(self) -> Attempt:
        """What the step may know about this attempt; made when it asks for it."""
        if self.attempt is None:
            activation, ask = self.activation, self.ask
            key = activation.idempotency_key(ask)
            self.attempt = Attempt(
                process=activation.process,
                step=ask.name,
                number=self.number,
                idempotency_key=key,
                extend=self.extend,
                left=self.left,
                last_progress=activation.steps.last_progress(ask),
                undoes=compensation.key_undone(activation, ask),
                connection=None if self.pact is None else self.pact.connection,
                show=self.publish,
            )
        return self.attempt

    def stop(self) -> None:
        """Silence this attempt and cancel it: its process was dropped, or its code wants it no more."""
        self.over = True
        self.agent.silence(self)

    def left(self) -> float:
        """Seconds until the deadline of this attempt."""
        return self.deadline - self.agent.loop.time()

    def told(self) -> dict[str, Any]:
        """What the row shows: the attempt's number and time, the seconds it may take (rule 14), what it reported."""
        attempt = self.attempt
        reported = self.activation.steps.last_progress(self.ask) if attempt is None else attempt.last_progress
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

    def publish(self, name: str, raw: bytes) -> None:
        """Publish a value, from whichever thread; raises DefinitionError if nobody could read it."""
        if isinstance(self.activation.workflow, QueueWork):
            raise DefinitionError(
                "a queued step is a process of its own, whose values nobody would look for. Return the value, and "
                "publish it in the workflow."
            )
        if len(self.activation.events) >= limits.PUBLISHED_RECORDS:
            raise PayloadTooLarge(
                f"{limits.PUBLISHED_RECORDS:,} values wait to be written. Put several into one, or let the step await "
                "something now and then."
            )
        agent = self.agent
        if get_ident() == agent.thread:
            agent.listener.step_shown(self, name, raw)
        else:
            agent.loop.call_soon_threadsafe(agent.listener.step_shown, self, name, raw)

    def held_up(self) -> Callable[[], bool] | None:
        """What tells whether it still cannot begin, if it waits for a shortage of this worker to end."""
        return self.agent.held_up_by(self)

    def heard(self, progress: bytes) -> None:
        """A heartbeat from a cell, with what the step has reported last."""
        self.current().last_progress = payload.decode(progress)
        self.extend()
