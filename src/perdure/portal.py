"""The portal: an engine for code without an event loop, as in Django, Flask and scripts; its verbs block.

It copies nothing of the client: each verb here is the client's own coroutine, run on the one event loop of one thread.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from perdure.authoring.schedule import Schedule
from perdure.authoring.start import Startable
from perdure.authoring.workflow import Workflow
from perdure.client.blocking import (
    AsyncVerb,
    BlockingAlertRules,
    BlockingBreakers,
    BlockingChecks,
    BlockingEventStreams,
    BlockingKinds,
    BlockingLeaders,
    BlockingOperations,
    BlockingOutages,
    BlockingPart,
    BlockingQueues,
    BlockingRecovery,
    BlockingReference,
    BlockingRetention,
    BlockingSavedSearches,
    BlockingStream,
    blocking,
)
from perdure.client.client import Client
from perdure.client.handle import Handle, ResultT
from perdure.client.in_transaction import Blocking, BlockingInTransaction, blocking_in_transaction
from perdure.client.schedules import ScheduleHandle, Schedules
from perdure.client.validation import ProcessId
from perdure.clock import Duration
from perdure.engine import Engine
from perdure.errors import PerdureError
from perdure.runtime.loop_thread import LoopThread, gone
from perdure.runtime.main_thread_end import let_finish, main_thread_end

P = ParamSpec("P")
R = TypeVar("R")


def _starting_verb(
    verb: AsyncVerb[Any, P, Handle[ResultT]],
) -> Callable[Concatenate[Any, P], BlockingHandle[ResultT]]:
    """The same for a verb that gives the handle of another process."""
    return wraps(verb)(
        lambda holder, /, *args, **kwargs: BlockingHandle(holder._engine, holder.run(verb, *args, **kwargs))
    )


def _settings_of(engine: Callable[P, Engine]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """The same for a constructor, which takes the settings of an engine."""
    return lambda constructor: wraps(engine.__init__)(constructor)


async def _metrics(engine: Engine) -> dict[str, float]:
    """Counters and durations since the engine was opened: see :meth:`Engine.metrics`."""
    return engine.metrics()


async def _schedule(schedules: Schedules, name: str) -> ScheduleHandle:
    """The schedule of that name: see :meth:`Schedules.handle`."""
    return schedules.handle(name)


class BlockingHandle(Generic[ResultT]):
    """What ``start`` of a :class:`BlockingEngine` returns: a :class:`Handle` whose verbs block."""

    def __init__(self, engine: BlockingEngine, handle: Handle[ResultT]) -> None:
        self._engine = engine
        self._handle = handle
        self.id, self.kind, self.key, self.created = handle.id, handle.kind, handle.key, handle.created
        self.sent = handle.sent

    def __repr__(self) -> str:
        return f"<BlockingHandle {self.kind} {self.key or self.id}>"

    def run(self, verb: AsyncVerb[Handle[ResultT], P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a verb of :class:`Handle` on the engine's event loop."""
        return self._engine.run(lambda engine: verb(self._handle, *args, **kwargs))

    def result(self, timeout: Duration | None = None) -> ResultT:
        """Wait for the end and give the result: see :meth:`Handle.result`."""
        return self._engine.run(lambda engine: self._handle.result(timeout))

    status = blocking(Handle.status)
    statuses = blocking(Handle.statuses)
    trace = blocking(Handle.trace)
    history = blocking(Handle.history)
    value = blocking(Handle.value)

    @wraps(Handle.values)
    def values(self, *args: Any, **kwargs: Any) -> BlockingStream[Any]:
        """The values that the process publishes, as they come, until it has ended: see :meth:`Handle.values`."""
        return BlockingStream(self._engine, self._handle.values(*args, **kwargs))

    signal = blocking(Handle.signal)
    call = blocking(Handle.call)
    cancel = blocking(Handle.cancel)
    terminate = blocking(Handle.terminate)
    fail = blocking(Handle.fail)
    repair = blocking(Handle.repair)
    hold = blocking(Handle.hold)
    resume = blocking(Handle.resume)
    retry = blocking(Handle.retry)
    fork = _starting_verb(Handle.fork)
    edit_input = blocking(Handle.edit_input)
    edit_fields = blocking(Handle.edit_fields)
    edit_attributes = blocking(Handle.edit_attributes)
    restart = blocking(Handle.restart)
    restart_from = blocking(Handle.restart_from)
    set_result = blocking(Handle.set_result)
    skip = blocking(Handle.skip)
    remove = blocking(Handle.remove)
    release_key = blocking(Handle.release_key)
    move = blocking(Handle.move)
    set_priority = blocking(Handle.set_priority)
    set_deadline = blocking(Handle.set_deadline)


class BlockingSchedules(BlockingPart[Schedules]):
    """What ``schedules`` of a :class:`BlockingEngine` gives: the verbs of :class:`Schedules`, which block."""

    def __init__(self, engine: BlockingEngine) -> None:
        super().__init__(engine, lambda open: open.schedules)
        self._portal = engine

    def put(
        self, name: str, schedule: Schedule, workflow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> BlockingScheduleHandle:
        """Make a schedule of that name, or change it: see :meth:`Schedules.put`."""
        put = self._engine.run(lambda engine: engine.schedules.put(name, schedule, workflow, *args, **kwargs))
        return BlockingScheduleHandle(self._portal, put)

    def handle(self, name: str) -> BlockingScheduleHandle:
        """The schedule of that name: see :meth:`Schedules.handle`."""
        return BlockingScheduleHandle(self._portal, self.run(_schedule, name))

    list = blocking(Schedules.list)


class BlockingScheduleHandle(BlockingReference[ScheduleHandle]):
    """What ``put`` and ``handle`` of :class:`BlockingSchedules` return: a :class:`ScheduleHandle` whose verbs block."""

    def __init__(self, engine: BlockingEngine, handle: ScheduleHandle) -> None:
        super().__init__(engine, handle)
        self.name = handle.name

    def __repr__(self) -> str:
        return f"<BlockingScheduleHandle {self.name}>"

    process = _starting_verb(ScheduleHandle.process)
    trigger = _starting_verb(ScheduleHandle.trigger)
    status = blocking(ScheduleHandle.status)
    pause = blocking(ScheduleHandle.pause)
    resume = blocking(ScheduleHandle.resume)
    remove = blocking(ScheduleHandle.remove)
    backfill = blocking(ScheduleHandle.backfill)


class BlockingEngine:
    """An :class:`Engine` for code without an event loop: the same verbs as ordinary calls, from any number of threads.

    ::

        with BlockingEngine(work=True) as engine:
            handle = engine.start(order.options(key="order/A-17"), "A-17", 1299)
            print(handle.result(timeout=10))

    An engine that is never entered opens itself at its first call and closes when the program ends, so it may be a
    global of a module. Where a server forks its workers, do not open it before the fork: an open engine does not
    survive a fork, and raises in the child. The settings are those of :class:`Engine`.
    """

    @_settings_of(Engine)
    def __init__(self, *args: Any, **settings: Any) -> None:
        self._make = partial(Engine, *args, **settings)
        self._lock = threading.RLock()  # a signal handler may call while its own thread holds the lock
        self._pid = 0
        self._engine: Engine | None = None
        self._thread: LoopThread | None = None
        self._ended: Future[None] | None = None
        self._left: float | None = None
        self.queues = BlockingQueues(self, lambda engine: engine.queues)
        self.kinds = BlockingKinds(self, lambda engine: engine.kinds)
        self.schedules = BlockingSchedules(self)
        self.recovery = BlockingRecovery(self, lambda engine: engine.recovery)
        self.breakers = BlockingBreakers(self, lambda engine: engine.breakers)
        self.outages = BlockingOutages(self, lambda engine: engine.outages)
        self.alerts = BlockingAlertRules(self, lambda engine: engine.alerts)
        self.retention = BlockingRetention(self)
        self.searches = BlockingSavedSearches(self, lambda engine: engine.searches)
        self.operations = BlockingOperations(self, lambda engine: engine.operations)
        self.checks = BlockingChecks(self, lambda engine: engine.checks)
        self.leaders = BlockingLeaders(self, lambda engine: engine.leaders)
        self.streams = BlockingEventStreams(self, lambda engine: engine.streams)

    @overload
    def start(self, workflow: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R]: ...
    @overload
    def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> BlockingHandle[Any]: ...
    def start(self, workflow: Startable[Any, Any] | str, /, *args: Any, **kwargs: Any) -> BlockingHandle[Any]:
        """Start a process: see :meth:`Client.start`."""
        return BlockingHandle(self, self.run(lambda engine: engine.start(workflow, *args, **kwargs)))

    @overload
    def start_many(
        self,
        workflow: Workflow[..., R],
        calls: Iterable[Sequence[Any]],
        *,
        keys: Iterable[str | None] | None = None,
    ) -> list[BlockingHandle[R]]: ...
    @overload
    def start_many(
        self, workflow: str, calls: Iterable[Sequence[Any]], *, keys: Iterable[str | None] | None = None
    ) -> list[BlockingHandle[Any]]: ...
    def start_many(
        self,
        workflow: Workflow[Any, Any] | str,
        calls: Iterable[Sequence[Any]],
        *,
        keys: Iterable[str | None] | None = None,
    ) -> list[BlockingHandle[Any]]:
        """Start many processes of one kind: see :meth:`Client.start_many`."""
        handles = self.run(lambda engine: engine.start_many(workflow, calls, keys=keys))
        return [BlockingHandle(self, handle) for handle in handles]

    @overload
    def results(self, handles: Iterable[BlockingHandle[R]], timeout: Duration | None = None) -> list[R]: ...
    @overload
    def results(
        self, handles: Iterable[BlockingHandle[R]], timeout: Duration | None = None, *, return_exceptions: bool
    ) -> list[R | Exception]: ...
    def results(
        self,
        handles: Iterable[BlockingHandle[Any]],
        timeout: Duration | None = None,
        *,
        return_exceptions: bool = False,
    ) -> list[Any]:
        """Wait until all these processes have ended: see :meth:`Client.results`."""
        every: list[Any] = [one._handle if isinstance(one, BlockingHandle) else one for one in handles]
        return self.run(lambda engine: engine.results(every, timeout, return_exceptions=return_exceptions))

    @overload
    def handle(self, workflow: Workflow[..., R], key: str) -> BlockingHandle[R]: ...
    @overload
    def handle(self, workflow: str, key: str) -> BlockingHandle[Any]: ...
    def handle(self, workflow: Workflow[Any, Any] | str, key: str) -> BlockingHandle[Any]:
        """The handle of the process with that key: see :meth:`Client.handle`."""
        return BlockingHandle(self, self.run(lambda engine: engine.handle(workflow, key)))

    @overload
    def process(self, process: ProcessId, type: type[R]) -> BlockingHandle[R]: ...
    @overload
    def process(self, process: ProcessId, type: Any = Any) -> BlockingHandle[Any]: ...
    def process(self, process: ProcessId, type: Any = Any) -> BlockingHandle[Any]:
        """The handle of the process with that id: see :meth:`Client.process`."""
        self._refuse_where_it_cannot_work()
        with self._lock:
            engine, _ = self._opened()
        return BlockingHandle(self, engine.process(process, type))

    webhook = blocking(Client.webhook)
    list = blocking(Client.list)
    count = blocking(Client.count)
    board = blocking(Client.board)
    explain = blocking(Client.explain)
    health = blocking(Client.health)
    failures = blocking(Client.failures)
    metrics = blocking(_metrics)

    def run(self, function: AsyncVerb[Engine, P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run ``function(engine, …)``, a coroutine function, on the engine's event loop and give its result.

        Its errors are raised here; a caller that stops waiting (Ctrl-C) cancels it. Raises PerdureError on an event
        loop, which must not be blocked, after a fork, on an engine that was closed, and if its thread has ended.
        """
        self._refuse_where_it_cannot_work()
        future: Future[R] = Future()
        try:
            with self._lock:  # a call comes before close(), or is refused
                engine, thread = self._opened()
                future = thread.ask(function(engine, *args, **kwargs))
            return future.result()
        except CancelledError:
            raise PerdureError(
                "the engine was closed during the call; whether the call took effect is unknown: ask again"
            ) from None
        finally:
            future.cancel()
            del future  # it may hold an error, whose traceback holds this frame

    def within(self, connection: Blocking) -> BlockingInTransaction[BlockingHandle[Any]]:
        """Start and signal inside the caller's own transaction, on this thread: see :meth:`Engine.within`."""
        self._refuse_where_it_cannot_work()
        with self._lock:
            engine, _ = self._opened()
        return blocking_in_transaction(engine, connection, lambda handle: BlockingHandle(self, handle))

    def open(self) -> Self:
        """Open the store now, not at the first call; raises StoreError. An open engine stays as it is."""
        self._refuse_where_it_cannot_work()
        with self._lock:
            self._opened()
        return self

    def close(self, seconds: float | None = None) -> None:
        """Stop for good: steps in flight get ``seconds`` (default: ``options.stop_seconds``), then all is released.

        Ctrl-C meanwhile releases everything at once. Calls under way raise PerdureError. What steps have left behind
        and does not end is left to the end of the program. In the child of a fork this closes nothing: the open engine
        belongs to the parent. Nor is there anything to close if its thread has ended.
        """
        if self._pid != os.getpid() or self._thread is None:
            return
        self._refuse_where_it_cannot_work()
        with self._lock:
            if self._thread.failure is None:
                self._ended = self._ended or self._thread.ask(self._end(self._thread, seconds))
        try:
            if self._ended is not None:
                self._ended.result()
        except KeyboardInterrupt:
            self._thread.loop.call_soon_threadsafe(self._engine.hurry if self._engine else self._thread.over.set)
            raise
        self._thread.join()
        atexit.unregister(self._close_at_exit)
        main_thread_end.remove(self._finish)

    __enter__ = open

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _refuse_where_it_cannot_work(self) -> None:
        if self._pid not in (0, os.getpid()):
            raise PerdureError("this engine was open at a fork, which no engine survives; open it only after the fork")
        if asyncio._get_running_loop() is not None:
            raise PerdureError(
                "this would block an event loop; use Engine there and await it (in a workflow: inside a step)"
            )

    def _opened(self) -> tuple[Engine, LoopThread]:
        if self._ended is not None:
            raise PerdureError("the engine is closed; make another one")
        if self._thread is not None and self._thread.failure is not None:
            raise gone(self._thread.failure)
        if self._engine is None or self._thread is None:
            engine = self._make()
            if self._thread is None:
                self._thread = LoopThread("perdure portal")
                self._pid = os.getpid()
                atexit.register(self._close_at_exit)  # a program may end without closing the engine
                main_thread_end.add(self._finish)
            opening = self._thread.ask(engine.__aenter__())
            try:
                self._engine = opening.result()
            finally:
                opening.cancel()
        return self._engine, self._thread

    def _finish(self) -> None:
        """The main thread ends, and Python's executors with it: give the steps under way their time now."""
        engine, thread = self._engine, self._thread
        if self._pid != os.getpid() or engine is None or engine.worker is None:
            return
        if thread is None or thread.failure is not None or self._ended is not None:
            return
        self._left = 0.0  # a Ctrl-C ends the wait
        self._left = thread.ask(let_finish(engine.worker, engine.options.stop_seconds)).result()

    def _close_at_exit(self) -> None:
        self.close(self._left)

    async def _end(self, thread: LoopThread, seconds: float | None) -> None:
        try:
            if self._engine is not None:
                await self._engine.close(seconds)
        finally:
            thread.over.set()
