"""The notary: runs the steps whose effect and result are one transaction, and tells their processes of the results.

A step that is run here is committed with its result, or leaves nothing. What it has come to reaches its process as a
message, so it is known to whoever has the process in hand then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.attempt import ATTEMPT
from perdure.authoring.step import unfit
from perdure.clock import Machine
from perdure.errors import DefinitionError, StoreUnavailable
from perdure.futures import at_once
from perdure.kernel import message as pact
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.logs import logger
from perdure.runtime.steps.attempt_run import LeaseLapsed
from perdure.runtime.steps.threads import Call
from perdure.store.base import Store
from perdure.store.step_transaction import Pact, Pacts, PactVerdict, pacts_of, sealing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from perdure.runtime.instance import Activation
    from perdure.runtime.scheduler import Scheduler
    from perdure.runtime.steps.agent import Agent
    from perdure.runtime.steps.attempt_run import Execution
    from perdure.turns.ask import Ask

log = logger("step")


class Kept(Struct, frozen=True, gc=False):
    """What became of a step that has returned: its verdict, and the message with its result if this attempt kept it."""

    verdict: PactVerdict
    message: Message | None = None


class NotBegun(Exception):
    """The database could not be reached to begin with: that was no attempt."""


class Notary:
    """Has each step call its function inside a pact. On SQLite one at a time, for there is one writer."""

    def __init__(self, store: Store, machine: Machine, scheduler: Scheduler) -> None:
        self._store = store
        self._machine = machine
        self._scheduler = scheduler
        self._pacts: Pacts | None = None
        self._seal: Callable[[Message], Message]
        self._waiting: deque[Execution] = deque()
        self._writing: Execution | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _agent(self) -> Agent:
        return self._scheduler.agent

    def open(self) -> None:
        """Import what the store's pacts are made of: not in the middle of a process, where a file may be refused."""
        self._pacts = pacts_of(self._store, self._machine)
        self._seal = sealing_of(self._store)

    def begin(self, execution: Execution) -> None:
        """Run an attempt; one that cannot have a transaction here has failed at once."""
        why = unfit(execution.ask.step, "" if self._pacts is None else self._pacts.kind)
        if self._pacts is None or why is not None:
            self._agent.loop.call_soon(self._agent.failed, execution, DefinitionError(why))
        elif self._pacts.blocking:
            self._waiting.append(execution)
            self._next()
        else:
            context = copy_context()
            context.run(ATTEMPT.set, execution.current)
            execution.task = self._started(self._run(self._pacts, execution), context)

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def _started(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = asyncio.Task(work, loop=self._agent.loop, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, pacts: Pacts, execution: Execution) -> None:
        try:
            made = await pacts.take()
        except BaseException as error:
            self._ended(execution, None, NotBegun(str(error)) if isinstance(error, StoreUnavailable) else error)
            return
        execution.pact = made
        try:
            kept = await self._performed(made, execution, partial(self._began, execution))
        except BaseException as error:
            await made.end()  # before the next attempt, which may want what this one holds
            self._ended(execution, None, error)
        else:
            self._ended(execution, kept, None)
            await made.end()

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Begin the next one that waits for the writer's place."""
        while self._writing is None and self._waiting:
            execution = self._waiting.popleft()
            if not execution.over:
                self._writing = execution
                write, written = partial(self._write, execution), partial(self._written, execution)
                execution.call = Call(write, _nothing, written, execution.ask.step)
                self._agent.threads.call(execution.call)

    def _write(self, execution: Execution) -> Kept:
        """All of it, in a thread: nothing that it awaits ever waits."""
        assert self._pacts is not None
        if execution.over:
            raise asyncio.CancelledError
        made = execution.pact = at_once(self._pacts.take())
        context = copy_context()
        context.run(ATTEMPT.set, execution.current)
        began = partial(self._agent.loop.call_soon_threadsafe, self._began, execution)
        try:
            kept: Kept = context.run(at_once, self._performed(made, execution, began))
            return kept
        finally:
            at_once(made.end())

    def _written(self, execution: Execution, kept: Kept | None, error: BaseException | None) -> None:
        self._ended(execution, kept, error)
        self._leave(execution)

    def _leave(self, execution: Execution) -> None:
        if self._writing is execution:
            self._writing = None
            self._next()

    # -- both ----------------------------------------------------------------------------------------------------------

    async def _performed(self, made: Pact, execution: Execution, began: Callable[[], Any]) -> Kept:
        """Call the step's function in its transaction, and commit it together with what it has returned."""
        ask, activation = execution.ask, execution.activation
        process = activation.process
        key = activation.idempotency_key(ask)
        try:
            if not await made.begin(process.id, pact.result_id(key), ask.step.timeout):
                return Kept(PactVerdict.KNOWN)  # an earlier attempt has committed, and nobody heard of it
        except StoreUnavailable as error:
            raise NotBegun(str(error)) from error
        if self._agent.late_for(execution):
            raise LeaseLapsed
        began()
        value = ask.step.function(*ask.args, **ask.kwargs)
        if ask.step.is_async:
            value = await value
        result = ask.step.shape.encode_result(value)
        message = pact.result(key, process.id, ask.name, ask.place, ask.digest, result)
        sealed = self._seal(message)
        if execution.over or not made.seal():
            raise TimeoutError("the step has returned after its attempt was given up")
        execution.task = None  # a COMMIT is never cancelled
        process = activation.process
        answer = await made.keep(sealed, process.owner or bytes(16), process.token)
        return Kept(answer.verdict, replace(message, number=answer.number, at=answer.at))

    def _began(self, execution: Execution) -> None:
        if not execution.over:
            self._agent.began(execution)

    def _ended(self, execution: Execution, kept: Kept | None, error: BaseException | None) -> None:
        if isinstance(error, NotBegun):
            self._put_off(execution, error)
        elif error is not None or kept is None:
            self._agent.failed(execution, error or asyncio.CancelledError())
        else:
            activation = execution.activation
            if not self._agent.silenced(execution):
                activation.in_flight.pop((execution.ask.name, execution.ask.place), None)
                self._agent.succeeded(execution.ask)
            if kept.verdict is PactVerdict.REFUSED:
                self._agent.telemetry.counters["commits_refused"] += 1
                log.info("process %s: a late result was refused, with its effect", id_text(activation.process.id))
                if not activation.gone:
                    self._scheduler.drop(activation)
            elif not activation.gone:
                self._tell(activation, kept.message if kept.verdict is PactVerdict.KEPT else None)

    def _put_off(self, execution: Execution, why: NotBegun) -> None:
        """Try again soon, until the process is taken from us: while the database is away it will be."""
        if execution.over:
            self._agent.failed(execution, asyncio.CancelledError())
            return
        log.warning("%s of process %s waits: %s", execution.ask.step, id_text(execution.activation.process.id), why)
        execution.pact = execution.task = execution.call = None
        wait = limits.RECONNECT_CAP_SECONDS * (0.5 + self._machine.random()) / 2
        self._agent.loop.call_later(wait, self._again, execution)

    def _again(self, execution: Execution) -> None:
        if not execution.over:
            self.begin(execution)

    def _tell(self, activation: Activation, message: Message | None) -> None:
        """Let the process hear its result, which lies in its inbox: at once, if it is the next that is to be heard."""
        if activation.unheard or message is None or message.number > activation.heard + 1:
            activation.unheard = activation.unheard or -1
            self._scheduler.unheard(activation)
        else:
            self._scheduler.heard(activation, [message])

    def give_up(self, execution: Execution) -> None:
        """An attempt counts no more: unless it is being committed just now, it is rolled back."""
        if execution.pact is None or execution.pact.abandon():
            self._leave(execution)

    async def close(self) -> None:
        """Wait a moment for what is being committed or rolled back, then let go of every connection."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2 * limits.TRANSACTION_GRACE_SECONDS)
        if self._pacts is not None:
            await self._pacts.close()


def awaited(activation: Activation, message: Message) -> Ask[Any] | None:
    """The step whose result this message is, if the code still waits for it; raises HistoryMisfit.

    It does if the code has changed meanwhile, and waits for that step with other arguments.
    """
    origin = pact.origin_of(message)
    ask = None if origin is None else activation.loop.open.get((message.name, origin.place))
    if origin is None or ask is None or pact.result_id(activation.idempotency_key(ask)) != message.id:
        return None
    if origin.digest != ask.digest.hex():
        activation.loop.step_done(ask.place, ask.name, bytes.fromhex(origin.digest), message.payload)
    return ask


def _nothing() -> None:
    """A step in a thread begins when its transaction does."""
