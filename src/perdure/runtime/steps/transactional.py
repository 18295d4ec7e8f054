"""Transactional steps: the effect and the result of each are one transaction; its process then gets the result.

A step that is run here is committed with its result, or leaves nothing. The result reaches the process as a message, so
any worker that holds the process by then knows it.
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
from perdure.authoring.step import unfit
from perdure.clock import Computer
from perdure.errors import DefinitionError, StoreUnavailable
from perdure.futures import at_once
from perdure.kernel import message as kernel_message
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.logs import logger
from perdure.runtime.steps.attempt_run import LeaseLapsed
from perdure.runtime.steps.threads import ThreadCall
from perdure.store.base import Store
from perdure.store.step_transaction import StepTransaction, StepTransactions, StepTransactionVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from perdure.runtime.instance import Instance
    from perdure.runtime.steps.attempt_run import AttemptRun, Runner

log = logger("step")


class Kept(Struct, frozen=True, gc=False):
    """What became of a step that has returned: its verdict, and the message with its result if this attempt kept it."""

    verdict: StepTransactionVerdict
    message: Message | None = None


class NotBegun(Exception):
    """The database could not be reached before the step began: that was no attempt."""


class TransactionalSteps:
    """Runs the function of each step inside a transaction. On SQLite one at a time, for there is one writer."""

    def __init__(self, store: Store, machine: Computer, agent: Runner) -> None:
        self._store = store
        self._machine = machine
        self._agent = agent
        self._step_transactions: StepTransactions | None = None
        self._waiting: deque[AttemptRun] = deque()
        self._writing: AttemptRun | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Be ready to run such steps, if the database lends transactions."""
        self._step_transactions = self._store.backend.step_transactions()

    def begin(self, attempt_run: AttemptRun) -> None:
        """Run an attempt; one that cannot have a transaction here has failed at once."""
        why = unfit(attempt_run.ask.step, None if self._step_transactions is None else self._step_transactions.blocking)
        if self._step_transactions is None or why is not None:
            self._agent.loop.call_soon(self._agent.failed, attempt_run, DefinitionError(why))
        elif self._step_transactions.blocking:
            self._waiting.append(attempt_run)
            self._next()
        else:
            context = copy_context()
            context.run(self._agent.enter, attempt_run.current)
            attempt_run.task = self._started(self._run(self._step_transactions, attempt_run), context)

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def _started(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> asyncio.Task[None]:
        task = asyncio.Task(work, loop=self._agent.loop, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, step_transactions: StepTransactions, attempt_run: AttemptRun) -> None:
        try:
            transaction = await step_transactions.take()
        except BaseException as error:
            self._ended(attempt_run, None, NotBegun(str(error)) if isinstance(error, StoreUnavailable) else error)
            return
        attempt_run.transaction = transaction
        try:
            kept = await self._performed(transaction, attempt_run, partial(self._began, attempt_run))
        except BaseException as error:
            await transaction.end()  # before the next attempt, which may need the locks that this one holds
            self._ended(attempt_run, None, error)
        else:
            self._ended(attempt_run, kept, None)
            await transaction.end()

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Begin the next one that waits for the writer's place."""
        while self._writing is None and self._waiting:
            attempt_run = self._waiting.popleft()
            if not attempt_run.over:
                self._writing = attempt_run
                write, written = partial(self._write, attempt_run), partial(self._written, attempt_run)
                attempt_run.call = ThreadCall(write, _nothing, written, attempt_run.ask.step)
                self._agent.threads.call(attempt_run.call)

    def _write(self, attempt_run: AttemptRun) -> Kept:
        """Run the whole attempt in a thread, where nothing that it awaits ever suspends it."""
        assert self._step_transactions is not None
        if attempt_run.over:
            raise asyncio.CancelledError
        transaction = attempt_run.transaction = at_once(self._step_transactions.take())
        context = copy_context()
        context.run(self._agent.enter, attempt_run.current)
        began = partial(self._agent.loop.call_soon_threadsafe, self._began, attempt_run)
        try:
            kept: Kept = context.run(at_once, self._performed(transaction, attempt_run, began))
            return kept
        finally:
            at_once(transaction.end())

    def _written(self, attempt_run: AttemptRun, kept: Kept | None, error: BaseException | None) -> None:
        self._ended(attempt_run, kept, error)
        self._leave(attempt_run)

    def _leave(self, attempt_run: AttemptRun) -> None:
        if self._writing is attempt_run:
            self._writing = None
            self._next()

    # -- both ----------------------------------------------------------------------------------------------------------

    async def _performed(self, transaction: StepTransaction, attempt_run: AttemptRun, began: Callable[[], Any]) -> Kept:
        """Call the step's function in its transaction, and commit it together with what it has returned."""
        ask, instance = attempt_run.ask, attempt_run.instance
        process = instance.process
        key = instance.idempotency_key(ask)
        try:
            if not await transaction.begin(process.id, kernel_message.result_id(key), attempt_run.timeout):
                return Kept(StepTransactionVerdict.KNOWN)  # an earlier attempt has committed, and its answer was lost
        except StoreUnavailable as error:
            raise NotBegun(str(error)) from error
        if self._agent.late_for(attempt_run):
            raise LeaseLapsed
        began()
        value = ask.step.function(*ask.args, **ask.kwargs)
        if ask.step.is_async:
            value = await value
        result = ask.step.shape.encode_result(value)
        message = kernel_message.result(key, process.id, ask.name, ask.place, ask.digest, result)
        if attempt_run.over or not transaction.mark_returned():
            raise TimeoutError("the step has returned after its attempt was given up")
        attempt_run.task = None  # a COMMIT is never cancelled
        process = instance.process
        answer = await transaction.keep(message, process.owner or bytes(16), process.token)
        return Kept(answer.verdict, replace(message, number=answer.number, at=answer.at))

    def _began(self, attempt_run: AttemptRun) -> None:
        if not attempt_run.over:
            self._agent.began(attempt_run)

    def _ended(self, attempt_run: AttemptRun, kept: Kept | None, error: BaseException | None) -> None:
        if isinstance(error, NotBegun):
            self._put_off(attempt_run, error)
        elif error is not None or kept is None:
            self._agent.failed(attempt_run, error or asyncio.CancelledError())
        else:
            instance = attempt_run.instance
            if not self._agent.silenced(attempt_run):
                instance.steps.end(attempt_run.ask.slot)
                self._agent.succeeded(attempt_run)
            if kept.verdict is StepTransactionVerdict.REFUSED:
                self._agent.telemetry.counters["commits_refused"] += 1
                log.info("process %s: a late result was refused, with its effect", id_text(instance.process.id))
                if not instance.gone:
                    self._agent.listener.step_refused(instance)
            elif not instance.gone:
                self._tell(instance, kept.message if kept.verdict is StepTransactionVerdict.KEPT else None)

    def _put_off(self, attempt_run: AttemptRun, why: NotBegun) -> None:
        """Try again soon, until this worker loses the process, as it will while the database is away."""
        if attempt_run.over:
            self._agent.failed(attempt_run, asyncio.CancelledError())
            return
        log.warning("%s of process %s waits: %s", attempt_run.ask.step, id_text(attempt_run.instance.process.id), why)
        attempt_run.transaction = attempt_run.task = attempt_run.call = None
        wait = limits.RECONNECT_CAP_SECONDS * (0.5 + self._machine.random()) / 2
        self._agent.loop.call_later(wait, self._again, attempt_run)

    def _again(self, attempt_run: AttemptRun) -> None:
        if not attempt_run.over:
            self.begin(attempt_run)

    def _tell(self, instance: Instance, message: Message | None) -> None:
        """Let the process hear the result, which is in its inbox."""
        self._agent.listener.step_kept(instance, message)

    def give_up(self, attempt_run: AttemptRun) -> None:
        """An attempt no longer counts: unless it is being committed just now, it is rolled back."""
        if attempt_run.transaction is None or attempt_run.transaction.abandon():
            self._leave(attempt_run)

    async def close(self) -> None:
        """Wait a moment for what is being committed or rolled back, then let go of every connection."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2 * limits.TRANSACTION_GRACE_SECONDS)
        if self._step_transactions is not None:
            await self._step_transactions.close()


def _nothing() -> None:
    """A step in a thread begins when its transaction does."""
