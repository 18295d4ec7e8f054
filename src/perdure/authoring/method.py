"""The methods of a machine: what it does when it is begun, called, told something, or when its time has come."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from msgspec import Struct

from perdure.clock import Duration
from perdure.errors import DefinitionError
from perdure.kernel.call_shape import CallShape

if TYPE_CHECKING:
    from perdure.authoring.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="Method[..., Any]")


class SendOptions(Struct, frozen=True):
    """The options of one call or signal, as :meth:`Method.options` takes them."""

    key: str | None = None
    timeout: Duration | None = None
    who: str = ""
    why: str = ""
    context: Mapping[str, Any] | None = None


class Method(Generic[P, R]):
    """A method of a machine, as its class shows it: ``handle.call(Account.deposit, 500)``.

    On an object of the class it is the plain method, for other methods to call.
    """

    kind = ""
    settings = SendOptions()

    def __init__(self, function: Callable[..., Any]) -> None:
        if not isinstance(function, FunctionType):
            raise DefinitionError(f"@machine.{self.kind} marks methods, not {function!r:.100}. Mark a `def`.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise DefinitionError(f"{function.__qualname__} yields. A method of a machine returns its answer.")
        if next(iter(inspect.signature(function).parameters), None) is None:
            raise DefinitionError(f"{function.__qualname__} has no `self`. A machine's method works on its fields.")
        self.function = function
        self.name = function.__name__
        self.shape: CallShape

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.kind} {self.function.__qualname__}>"

    @overload
    def __get__(self: M, instance: None, owner: type) -> M: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """The method itself on the class, the bound function on an object."""
        return self if instance is None else self.function.__get__(instance, owner)

    def options(
        self: M,
        *,
        key: str | None = None,
        timeout: Duration | None = None,
        who: str = "",
        why: str = "",
        context: Mapping[str, Any] | None = None,
    ) -> M:
        """The same with options for one call or signal: ``handle.call(Account.deposit.options(key="t-1"), 500)``.

        ``key`` is the caller's own id: of those with one key only the first counts. After ``timeout`` seconds a call
        raises TimeoutError. ``who`` asks and ``why`` is recorded. ``context`` is a small mapping that the method gets
        by ``perdure.context()``, and that goes on from there.
        """
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__)
        same.settings = SendOptions(key, timeout, who, why, context)
        return same


class CallMethod(Method[P, R]):
    """A method that answers its caller."""

    kind = "call"


class SignalMethod(Method[P, R]):
    """A method whose sender does not wait."""

    kind = "signal"


class TimerMethod(Method[P, R]):
    """The method that runs when the machine's time has come."""

    kind = "timer"


class InitMethod(Method[P, R]):
    """The method with which a machine begins."""

    kind = "init"


class RepairMethod(Method[P, R]):
    """A method that a person runs in place of the one that has broken the machine."""

    kind = "repair"


if TYPE_CHECKING:

    def init(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, None] | None]) -> Workflow[P, Any]:
        """The method with which a machine begins: ``engine.start(Account.opened, "Ann")``."""

    @overload
    def call(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> CallMethod[P, R]: ...
    @overload
    def call(function: Callable[Concatenate[Any, P], R]) -> CallMethod[P, R]: ...
    def call(function: Callable[..., Any]) -> CallMethod[..., Any]:
        """A method that answers its caller: ``balance = await handle.call(Account.deposit, 500)``."""

    def signal(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, None] | None]) -> SignalMethod[P, None]:
        """A method whose sender does not wait: ``await handle.signal(Account.close)``."""

    def repair(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, None] | None]) -> RepairMethod[P, None]:
        """A method that a person runs once it is broken: ``await handle.repair(Account.corrected, 500)``."""

    def timer(function: Callable[[Any], Coroutine[Any, Any, None] | None]) -> TimerMethod[[], None]:
        """The method that runs when the machine's time has come."""
else:
    init, call, signal, timer, repair = InitMethod, CallMethod, SignalMethod, TimerMethod, RepairMethod


def without_self(function: FunctionType, *, answers: bool = True) -> Callable[..., Any]:
    """A stand-in with the signature and the annotations of a method as its callers see it.

    The machine's end, and not its beginning, gives the result of its process: this one does not ``answer``.
    """

    @wraps(function)
    def stand_in() -> None:
        raise TypeError("it is never called")

    whole = inspect.signature(function)
    first, *others = whole.parameters.values()
    stand_in.__signature__ = whole.replace(parameters=others)  # type: ignore[attr-defined]
    left_out = {first.name} if answers else {first.name, "return"}
    stand_in.__annotations__ = {name: of for name, of in function.__annotations__.items() if name not in left_out}
    return stand_in
