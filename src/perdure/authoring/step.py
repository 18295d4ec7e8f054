"""A step: a side effect that a workflow asks for; it may run more than once, but its result counts once."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from inspect import isasyncgenfunction, isbuiltin, iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, ParamSpec, TypeVar, overload

from perdure.authoring.ask import Ask
from perdure.authoring.attempt import ATTEMPT, Attempt, attempt
from perdure.authoring.definition import name_of
from perdure.authoring.turn_loop import TurnLoop
from perdure.errors import DefinitionError
from perdure.kernel.payload import CallShape
from perdure.kernel.policy import Retry
from perdure.limits import STEP_TIMEOUT_SECONDS

__all__ = ["ATTEMPT", "Ask", "Attempt", "Step", "attempt", "step"]

P = ParamSpec("P")
R = TypeVar("R")
_DEFAULT_RETRY = Retry()


class Step(Generic[P, R]):
    """A function marked with :func:`step`. Called in a workflow it asks for itself; elsewhere it just runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: float | None = STEP_TIMEOUT_SECONDS,
        permanent: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.name = name_of(function, name, "step")
        self.function = function
        self.retry = _retry(retry or _DEFAULT_RETRY, permanent)
        self.timeout = STEP_TIMEOUT_SECONDS if timeout is None else _seconds(timeout, self.name)
        self.is_async = iscoroutinefunction(function)
        if isgeneratorfunction(function) or isasyncgenfunction(function) or isbuiltin(function):
            raise DefinitionError(f"step {self.name!r} is no plain function. Mark a `def` or `async def` that returns.")
        self.shape = CallShape(function)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        loop = _get_running_loop()
        if type(loop) is TurnLoop:
            return loop.ask(self, args, kwargs)
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<step {self.name}>"


@overload
def step(function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: float | None = STEP_TIMEOUT_SECONDS,
    permanent: tuple[type[BaseException], ...] = (),
) -> _Decorator: ...
def step(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Mark a function as a step; an ordinary one runs in a thread.

    ``retry`` says when to try again (default: three attempts), ``timeout`` how many seconds an attempt may take from
    start to end, and ``permanent`` which errors another attempt cannot cure. Raises DefinitionError.
    """
    if function is not None:
        return Step(function)
    return lambda decorated: Step(decorated, **settings)


class _Decorator:
    """What ``@step(...)`` answers."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any: ...


def _retry(retry: Retry, permanent: tuple[type[BaseException], ...]) -> Retry:
    if not isinstance(retry, Retry):
        raise DefinitionError(f"retry={retry!r} is no Retry. Write retry=Retry(attempts=5).")
    if not permanent:
        return retry
    from dataclasses import replace

    never = retry.never if isinstance(retry.never, tuple) else (retry.never,)
    return replace(retry, never=(*never, *permanent))


def _seconds(timeout: float, name: str) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise DefinitionError(f"step {name!r} has timeout={timeout!r}. Give seconds, more than 0 and finite.")
    return float(timeout)
