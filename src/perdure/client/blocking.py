"""The parts of a blocking engine that have verbs of their own: queues, breakers, leaders, automatic recovery."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from perdure.client.breakers import Breakers
from perdure.client.leaders import Leaders
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
