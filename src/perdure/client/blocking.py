"""The parts of a blocking engine that have verbs of their own, as queues, leaders and event streams have."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from perdure.client.alerting.rules import AlertRules
from perdure.client.breakers import Breakers
from perdure.client.checks import CheckRunHandle, Checks, CheckView
from perdure.client.finding.saved import SavedSearches
from perdure.client.kinds import LimitedKinds
from perdure.client.leaders import Leaders
from perdure.client.operations import OperationHandle, Operations
from perdure.client.outages import Outages
from perdure.client.queues import Queues
from perdure.client.recovery import Recovery
from perdure.client.retention import OnRetention, RetentionForecast, RetentionRun, RetentionView
from perdure.client.streams import EventStreams
from perdure.client.values import Stream
from perdure.futures import in_thread
from perdure.streaming.batches import StreamBatches
from perdure.streaming.record import StreamRecord

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Holder = TypeVar("Holder")
Blocked = TypeVar("Blocked")
AsyncVerb = Callable[Concatenate[Holder, P], Coroutine[Any, Any, R]]


class Runs(Protocol):
    """What runs verbs of an engine on its event loop: a blocking engine."""

    def run(self, verb: AsyncVerb[Any, P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a verb, and wait for its answer."""


def blocking(verb: AsyncVerb[Any, P, R]) -> Callable[Concatenate[Any, P], R]:
    """A verb of the client or of a handle as an ordinary call: the same name, parameters, answer and errors."""
    return wraps(verb)(lambda holder, /, *args, **kwargs: holder.run(verb, *args, **kwargs))


class BlockingPart(Generic[Holder]):
    """A part of a :class:`~perdure.BlockingEngine` that has verbs of its own, which block."""

    def __init__(self, engine: Runs, part: Callable[[Any], Holder]) -> None:
        self._engine = engine
        self._part = part

    def run(self, verb: AsyncVerb[Holder, P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a verb of that part of :class:`~perdure.Engine` on the engine's event loop."""
        return self._engine.run(lambda engine: verb(self._part(engine), *args, **kwargs))


class BlockingStream(Generic[T]):
    """What ``values`` of a blocking handle returns: a :class:`Stream` for an ordinary ``for``."""

    def __init__(self, engine: Runs, stream: Stream[T]) -> None:
        self._engine = engine
        self._stream = stream

    @property
    def run(self) -> int | None:
        """The run in which the last value was published."""
        return self._stream.run

    @property
    def number(self) -> int:
        """The number of the last value."""
        return self._stream.number

    @property
    def name(self) -> str | None:
        """The name of the last value."""
        return self._stream.name

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        given = self._engine.run(lambda engine: self._next())
        if not given:
            raise StopIteration
        return given[0]

    async def _next(self) -> tuple[T, ...]:
        async for value in self._stream:
            return (value,)
        return ()

    def close(self) -> None:
        """Stop following."""
        self._engine.run(lambda engine: self._stream.aclose())


class BlockingQueues(BlockingPart[Queues]):
    """What ``queues`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Queues`, which block."""

    limit = blocking(Queues.limit)
    block = blocking(Queues.block)
    unblock = blocking(Queues.unblock)
    list = blocking(Queues.list)


class BlockingBreakers(BlockingPart[Breakers]):
    """What ``breakers`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Breakers`, which block."""

    list = blocking(Breakers.list)
    state = blocking(Breakers.state)
    open = blocking(Breakers.open)
    close = blocking(Breakers.close)
    reset = blocking(Breakers.reset)


class BlockingKinds(BlockingPart[LimitedKinds]):
    """What ``kinds`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`LimitedKinds`, which block."""

    list = blocking(LimitedKinds.list)
    limit = blocking(LimitedKinds.limit)
    unlimit = blocking(LimitedKinds.unlimit)


class BlockingOutages(BlockingPart[Outages]):
    """What ``outages`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Outages`, which block."""

    list = blocking(Outages.list)
    begin = blocking(Outages.begin)
    end = blocking(Outages.end)


class BlockingAlertRules(BlockingPart[AlertRules]):
    """What ``alerts`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`AlertRules`, which block."""

    add = blocking(AlertRules.add)
    list = blocking(AlertRules.list)
    silence = blocking(AlertRules.silence)
    test = blocking(AlertRules.test)
    remove = blocking(AlertRules.remove)
    look = blocking(AlertRules.look)


class BlockingRetention:
    """What ``retention`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Retention`, which block.

    ``on_progress`` is called in the thread of the engine.
    """

    def __init__(self, engine: Runs) -> None:
        self._engine = engine

    def run(self, on_progress: OnRetention | None = None) -> RetentionRun:
        """See :meth:`Retention.run`."""
        done: RetentionRun = self._engine.run(lambda engine: engine.retention.run(on_progress))
        return done

    def preview(self) -> Sequence[RetentionForecast]:
        """See :meth:`Retention.preview`."""
        return self._engine.run(lambda engine: engine.retention.preview())

    def list(self) -> Sequence[RetentionView]:
        """See :meth:`Retention.list`."""
        return self._engine.run(lambda engine: engine.retention.list())


class BlockingSavedSearches(BlockingPart[SavedSearches]):
    """What ``searches`` of a :class:`~perdure.BlockingEngine` gives: verbs of :class:`SavedSearches`, which block."""

    list = blocking(SavedSearches.list)
    save = blocking(SavedSearches.save)
    remove = blocking(SavedSearches.remove)


class BlockingLeaders(BlockingPart[Leaders]):
    """What ``leaders`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Leaders`, which block."""

    list = blocking(Leaders.list)
    state = blocking(Leaders.state)
    release = blocking(Leaders.release)


class BlockingBatches:
    """What ``read`` of :class:`BlockingEventStreams` returns: :class:`StreamBatches` for an ordinary ``for``."""

    def __init__(self, engine: Runs, batches: StreamBatches) -> None:
        self._engine = engine
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Sequence[StreamRecord]:
        given = self._engine.run(lambda engine: self._next())
        if given is None:
            raise StopIteration
        return given

    async def _next(self) -> Sequence[StreamRecord] | None:
        return await anext(self._batches, None)

    def handled(self) -> None:
        """Say that the last batch was handled: see :meth:`StreamBatches.handled`."""
        self._engine.run(lambda engine: self._batches.handled())

    def close(self) -> None:
        """Give the stream back: see :meth:`StreamBatches.aclose`."""
        self._engine.run(lambda engine: self._batches.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Give the stream back."""
        self.close()


class BlockingEventStreams(BlockingPart[EventStreams]):
    """What ``streams`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`EventStreams`, which block."""

    put = blocking(EventStreams.put)
    list = blocking(EventStreams.list)
    state = blocking(EventStreams.state)
    remove = blocking(EventStreams.remove)
    tail = blocking(EventStreams.tail)

    def read(self, name: str, *, wait: bool = True) -> BlockingBatches:
        """The batches that were not handled yet, for an ordinary ``for``: see :meth:`EventStreams.read`."""
        return BlockingBatches(self._engine, self.run(_read, name, wait=wait))

    def follow(self, name: str, consume: Callable[[Sequence[StreamRecord]], object], *, wait: bool = True) -> None:
        """Call ``consume(batch)`` in a thread for each batch: see :meth:`EventStreams.follow`."""
        self.run(EventStreams.follow, name, lambda batch: in_thread(consume, batch), wait=wait)


async def _read(streams: EventStreams, name: str, *, wait: bool) -> StreamBatches:
    return streams.read(name, wait=wait)


class BlockingRecovery(BlockingPart[Recovery]):
    """What ``recovery`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Recovery`, which block."""

    state = blocking(Recovery.state)
    pause = blocking(Recovery.pause)
    resume = blocking(Recovery.resume)
    limit = blocking(Recovery.limit)
    sweeps = blocking(Recovery.sweeps)
    progress = blocking(Recovery.progress)


class BlockingReference(Generic[Holder]):
    """A handle of something that a part of a blocking engine has: its verbs block."""

    def __init__(self, engine: Runs, handle: Holder) -> None:
        self._engine = engine
        self._handle = handle

    def run(self, verb: AsyncVerb[Holder, P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a verb of that handle on the engine's event loop."""
        return self._engine.run(lambda engine: verb(self._handle, *args, **kwargs))


class Identified(Protocol):
    """A handle of something durable that goes on by itself: an operation, a check run."""

    id: str


RunT = TypeVar("RunT", bound=Identified)


class BlockingRun(BlockingReference[RunT]):
    """The same for what has an ``id``."""

    def __init__(self, engine: Runs, handle: RunT) -> None:
        super().__init__(engine, handle)
        self.id = handle.id


def _starting(
    verb: AsyncVerb[Any, P, RunT], blocked: Callable[[Runs, RunT], Blocked]
) -> Callable[Concatenate[Any, P], Blocked]:
    """A verb that starts such a run, as an ordinary call: what it gives is ``blocked``."""
    return wraps(verb)(lambda part, /, *args, **kwargs: blocked(part._engine, part.run(verb, *args, **kwargs)))


class BlockingOperationHandle(BlockingRun[OperationHandle]):
    """What ``start`` and ``handle`` of :class:`BlockingOperations` give: an :class:`OperationHandle` that blocks."""

    status = blocking(OperationHandle.status)
    pause = blocking(OperationHandle.pause)
    resume = blocking(OperationHandle.resume)
    abort = blocking(OperationHandle.abort)
    result = blocking(OperationHandle.result)


class BlockingOperations(BlockingPart[Operations]):
    """What ``operations`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Operations`, blocking."""

    preview = blocking(Operations.preview)
    preview_undo = blocking(Operations.preview_undo)
    list = blocking(Operations.list)
    start = _starting(Operations.start, BlockingOperationHandle)
    undo = _starting(Operations.undo, BlockingOperationHandle)

    def handle(self, id: str) -> BlockingOperationHandle:
        """The operation with this id."""
        return BlockingOperationHandle(self._engine, self.run(_handle, id))


async def _handle(operations: Operations, id: str) -> OperationHandle:
    return operations.handle(id)


class BlockingCheckRunHandle(BlockingRun[CheckRunHandle]):
    """What ``start`` and ``handle`` of :class:`BlockingChecks` give: a :class:`CheckRunHandle` that blocks."""

    status = blocking(CheckRunHandle.status)
    cancel = blocking(CheckRunHandle.cancel)
    result = blocking(CheckRunHandle.result)


class BlockingChecks(BlockingPart[Checks]):
    """What ``checks`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Checks`, blocking."""

    preview = blocking(Checks.preview)
    runs = blocking(Checks.runs)
    findings = blocking(Checks.findings)
    background = blocking(Checks.background)
    start = _starting(Checks.start, BlockingCheckRunHandle)

    def list(self) -> list[CheckView]:
        """All checks that there are."""
        return self.run(_listed)

    def handle(self, id: str) -> BlockingCheckRunHandle:
        """The check run with this id."""
        return BlockingCheckRunHandle(self._engine, self.run(_run, id))


async def _listed(checks: Checks) -> list[CheckView]:
    return checks.list()


async def _run(checks: Checks, id: str) -> CheckRunHandle:
    return checks.handle(id)
