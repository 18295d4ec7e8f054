"""A workflow: an ordinary ``async def`` whose processes survive crashes, because its steps are recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, TypeVar, overload
from weakref import WeakValueDictionary

from perdure.authoring.definition import name_of
from perdure.authoring.turn import now, process_id, random, receive, set_state, uuid
from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.names import check_name
from perdure.kernel.payload import CallShape

__all__ = ["Workflow", "now", "process_id", "random", "receive", "set_state", "uuid", "workflow"]

P = ParamSpec("P")
R = TypeVar("R")

DEFINED: WeakValueDictionary[str, Workflow[Any, Any]] = WeakValueDictionary()
"""Every workflow of this program by name, the one defined last; what an engine hosts unless it is told otherwise."""


class Workflow(Generic[P, R]):
    """A function marked with :func:`workflow`. ``name`` is the kind of its processes.

    ``deadline``, ``retention`` and ``idle`` are seconds, or None for the defaults: the time a process may take, how
    long a finished one is kept, and how long an unchanged one waits for a check.
    """

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        *,
        name: str | None = None,
        version: str = "",
        deadline: float | None = None,
        retention: float | None = None,
        idle: float | None = None,
    ) -> None:
        self.name = name_of(function, name, "workflow")
        if not iscoroutinefunction(function):
            raise DefinitionError(f"workflow {self.name!r} is no coroutine function. Write `async def`.")
        self.function = function
        self.version = _version(version, self.name)
        self.deadline = _seconds("deadline", deadline, self.name)
        self.retention = _seconds("retention", retention, self.name)
        self.idle = _seconds("idle", idle, self.name)
        self.shape = CallShape(function)
        update_wrapper(self, function)
        DEFINED[self.name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "",
    deadline: float | None = None,
    retention: float | None = None,
    idle: float | None = None,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Workflow[P, R]]: ...
def workflow(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Mark an ``async def`` as a workflow, whose calls can be started as durable processes; raises DefinitionError."""
    if function is not None:
        return Workflow(function)
    return lambda decorated: Workflow(decorated, **settings)


def _version(version: str, name: str) -> str:
    try:
        return check_name(version, f"the version of workflow {name!r}") if version else ""
    except InvalidKey as error:
        raise DefinitionError(str(error)) from None


def _seconds(what: str, seconds: float | None, name: str) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise DefinitionError(f"workflow {name!r} has {what}={seconds!r}. Give seconds, more than 0 and finite.")
    return float(seconds)
