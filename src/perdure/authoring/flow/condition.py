"""The conditions of a flow: whether a row counts for an event, by the flow's fields and what the event brings.

Statecharts call them *guards*.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, get_type_hints

from perdure.authoring.step import Step
from perdure.errors import DefinitionError, WorkflowMisuse
from perdure.kernel.plain import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.authoring.flow.event import FlowEvent

P = ParamSpec("P")
ANYTHING = (Any, object)
"""Types of a parameter that takes whatever the event brings."""


class Condition:
    """A method marked with :func:`condition`, as its class shows it. On an object it is the plain method."""

    def __init__(self, function: Callable[..., bool]) -> None:
        if not isinstance(function, FunctionType) or inspect.iscoroutinefunction(function):
            raise DefinitionError(f"@flow.condition marks methods that are a plain `def`, not {function!r:.100}.")
        self.function, self.name = function, function.__name__
        _, *taken = inspect.signature(function).parameters
        self.parameters = taken
        _check_pure(function)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        """The condition itself on the class, the bound method on an object."""
        return self if instance is None else self.function.__get__(instance, owner)

    def __repr__(self) -> str:
        return f"condition {self.name}"

    def unfit(self, event: FlowEvent[...] | None) -> str:
        """Why it cannot judge an event, or a timeout (None), which brings nothing; empty if it can."""
        brought = {} if event is None else types_of(event.body)
        what = "a timeout, which brings nothing" if event is None else f"the event {event.name!r}"
        for name, type in types_of(self.function).items():
            if name not in brought:
                return f"takes {name!r}, which does not come with {what}"
            if type not in ANYTHING and brought[name] not in (type, Any):
                return f"takes {name!r} as another type than {what} has it"
        return ""

    def holds(self, flow: Any, brought: Mapping[str, Any]) -> bool:
        """Whether it holds for a flow, whose fields the event has not changed yet; raises WorkflowMisuse."""
        verdict = self.function(flow, *(brought[name] for name in self.parameters))
        if not isinstance(verdict, bool):
            raise WorkflowMisuse(
                f"{self.function.__qualname__} has returned {shown(verdict)}. A condition returns True or False."
            )
        return verdict


def condition(function: Callable[Concatenate[Any, P], bool]) -> Condition:
    """Mark a method by which a row is chosen: ``flow.on(priced, in_=asking, when=cheap).to(paying)``.

    It is a plain ``def`` that returns True or False, and changes nothing. It sees the fields as they were before the
    event, and takes what it wants to know of the event by the names of the event's parameters. Raises DefinitionError.
    """
    return Condition(function)


def types_of(function: FunctionType) -> dict[str, Any]:
    """The types of the parameters, without ``self``; what has none takes anything."""
    _, *taken = inspect.signature(function).parameters
    try:
        hints = get_type_hints(function)
    except NameError:  # a type that is not known here counts as any
        hints = {}
    return {name: hints.get(name, Any) for name in taken}


def _check_pure(function: FunctionType) -> None:
    """Raise DefinitionError if a condition changes a field, or asks for a step."""
    own, before = function.__code__.co_varnames[:1], ""
    for one in dis.get_instructions(function):
        if one.opname in ("STORE_ATTR", "DELETE_ATTR") and (before,) == own:
            raise DefinitionError(
                f"{function.__qualname__} changes the field {one.argval!r}, but a condition is only asked, perhaps "
                "for a row that does not count then. Change fields in a method marked @flow.event."
            )
        loaded = one.argval[-1] if isinstance(one.argval, tuple) else one.argval  # Python 3.13 loads two at once
        before = loaded if one.opname.startswith("LOAD_FAST") else ""
    for name in function.__code__.co_names:
        if isinstance(function.__globals__.get(name), Step):
            raise DefinitionError(
                f"{function.__qualname__} names the step {name!r}, but a condition decides by what the flow knows. "
                "Ask for the step in a method marked @flow.action, and let an event bring its result."
            )
