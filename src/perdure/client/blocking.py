"""The parts of a blocking engine that have verbs of their own: queues, breakers, leaders, recovery, operations."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from perdure.client.breakers import Breakers
from perdure.client.leaders import Leaders
from perdure.client.operations import OperationHandle, Operations
from perdure.client.queues import Queues
from perdure.client.recovery import Recovery

P = ParamSpec("P")
R = TypeVar("R")
Holder = TypeVar("Holder")
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


class BlockingLeaders(BlockingPart[Leaders]):
    """What ``leaders`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Leaders`, which block."""

    list = blocking(Leaders.list)
    state = blocking(Leaders.state)
    release = blocking(Leaders.release)


class BlockingRecovery(BlockingPart[Recovery]):
    """What ``recovery`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Recovery`, which block."""

    state = blocking(Recovery.state)
    pause = blocking(Recovery.pause)
    resume = blocking(Recovery.resume)


class BlockingOperationHandle:
    """What ``run`` and ``handle`` of :class:`BlockingOperations` give: an :class:`OperationHandle` that blocks."""

    def __init__(self, engine: Runs, handle: OperationHandle) -> None:
        self._engine = engine
        self._handle = handle
        self.id = handle.id

    def run(self, verb: AsyncVerb[OperationHandle, P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a verb of :class:`OperationHandle` on the engine's event loop."""
        return self._engine.run(lambda engine: verb(self._handle, *args, **kwargs))

    status = blocking(OperationHandle.status)
    pause = blocking(OperationHandle.pause)
    resume = blocking(OperationHandle.resume)
    abort = blocking(OperationHandle.abort)
    result = blocking(OperationHandle.result)


class BlockingOperations(BlockingPart[Operations]):
    """What ``operations`` of a :class:`~perdure.BlockingEngine` gives: the verbs of :class:`Operations`, blocking."""

    preview = blocking(Operations.preview)
    list = blocking(Operations.list)

    def start(self, verb: str, where: str, **settings: Any) -> BlockingOperationHandle:
        """Start an operation: see :meth:`Operations.start`."""
        started = self._engine.run(lambda engine: self._part(engine).start(verb, where, **settings))
        return BlockingOperationHandle(self._engine, started)

    def handle(self, id: str) -> BlockingOperationHandle:
        """The operation with this id."""
        return BlockingOperationHandle(self._engine, self._engine.run(lambda engine: _handle(self._part(engine), id)))


async def _handle(operations: Operations, id: str) -> OperationHandle:
    return operations.handle(id)
