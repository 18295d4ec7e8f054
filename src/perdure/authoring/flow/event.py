"""The events of a flow: methods that change its fields, sent from outside or brought about by its own actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, overload

from msgspec import Struct

from perdure.authoring.flow.state import TimedOut
from perdure.authoring.method import CallMethod, InitMethod, SignalMethod
from perdure.errors import DefinitionError

if TYPE_CHECKING:
    from perdure.authoring.workflow import Workflow

P = ParamSpec("P")


class Happened(Struct, frozen=True):
    """An event with its arguments, as an action returns it: ``return self.reserved("R-17")``."""

    event: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}


class SendMethod(CallMethod[P, str], SignalMethod[P, str]):
    """A method of a flow that may be called, then its caller learns the state after it, or sent as a signal."""


class FlowEvent(SendMethod[P], Generic[P]):
    """A method marked with :func:`event`. ``body`` is the method itself; ``function`` lets the flow react to it.

    On the class it is what senders name: ``handle.signal(Transfer.reserved, "R-17")``. On an object of the class, a
    call says that the event has happened: ``return self.reserved("R-17")``.
    """

    kind = "event"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.body: FunctionType = plain(function, "event")
        super().__init__(_reacting(self, self.body))
        self._signature = inspect.signature(self.body)
        _, *taken = self._signature.parameters.values()
        self.parameters = [one.name for one in taken]
        self.optional = {one.name for one in taken if one.default is not one.empty}

    def brought(self, happened: Happened) -> dict[str, Any]:
        """What the event brings, by the names of its parameters."""
        bound = self._signature.bind(None, *happened.args, **happened.kwargs)
        bound.apply_defaults()
        return bound.arguments

    @overload  # type: ignore[override]
    def __get__(self, instance: None, owner: type) -> FlowEvent[P]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, Happened]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self._happened

    def _happened(self, *args: P.args, **kwargs: P.kwargs) -> Happened:
        return Happened(self.name, args, kwargs)


class FlowInit(InitMethod[P, Any]):
    """The method with which a flow begins."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.body: FunctionType = plain(function, "init")
        super().__init__(_beginning(self.body))


def plain(function: Any, mark: str) -> FunctionType:
    """The function of an event, which only changes fields; raises DefinitionError."""
    if not isinstance(function, FunctionType):
        raise DefinitionError(f"@flow.{mark} marks methods, not {function!r:.100}. Mark a `def`.")
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{function.__qualname__} is an `async def`, but an event only changes fields. Make it a `def`, and await "
            "steps in a method marked @flow.action."
        )
    return function


def _reacting(event: FlowEvent[...], body: FunctionType) -> Callable[..., Any]:
    @wraps(body)
    async def react(self: Any, *args: Any, **kwargs: Any) -> str:
        state: str = await self._reaction().react(Happened(event.name, args, kwargs))
        return state

    react.__annotations__ = {**body.__annotations__, "return": str}
    return react


def _beginning(body: FunctionType) -> Callable[..., Any]:
    @wraps(body)
    async def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        body(self, *args, **kwargs)
        await self._reaction().begin()

    return begin


if TYPE_CHECKING:
    Trigger: TypeAlias = FlowEvent[...] | TimedOut | Workflow[..., Any]

    def init(function: Callable[Concatenate[Any, P], None]) -> Workflow[P, Any]:
        """The method with which a flow begins: ``engine.start(Transfer.begun, ...)``. It only sets fields.

        Another flow, or a workflow, calls it as a child: ``await Transfer.begun.child(...)``.
        """

    def event(function: Callable[Concatenate[Any, P], None]) -> FlowEvent[P]:
        """An event of the flow: a method that takes its arguments into the fields, and does nothing else."""

    def sent(function: Callable[Concatenate[Any, P], Any]) -> SendMethod[P]:
        """A method of every flow."""
else:
    Trigger = Any
    init, event, sent = FlowInit, FlowEvent, SendMethod
