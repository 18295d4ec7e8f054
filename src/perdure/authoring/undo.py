"""An undo: by which step another one is taken back, and what that one is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from types import NoneType
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from perdure.errors import DefinitionError

if TYPE_CHECKING:
    from perdure.authoring.child import Child
    from perdure.authoring.step import Step

_RESULT = "result"


@dataclass(frozen=True, slots=True)
class Undo:
    """What undoes the step or child ``of``: a ``step``, which gets those arguments that it names like ``of`` does.

    ``wants_result``: it also has a parameter ``result``, for what ``of`` has answered, or None if that is unknown.
    """

    step: Step[Any, Any]
    of: Step[Any, Any] | Child[Any, Any]
    names: tuple[str, ...]
    wants_result: bool
    takes: Signature

    def arguments(self, call: bytes, result: bytes | None) -> dict[str, Any]:
        """What the undo is called with, by the payloads of the step's call and result; raises PayloadError."""
        args, kwargs = self.of.shape.decode(call)
        bound = self.takes.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {name: bound.arguments[name] for name in self.names}
        if self.wants_result:
            given[_RESULT] = None if result is None else self.of.shape.decode_result(result)
        return given


def undo_of(step: Step[Any, Any] | Child[Any, Any], undo: Any) -> Undo | None:
    """The undo that ``undo=...`` names, if it can be called with what is known then; raises DefinitionError."""
    if undo is None:
        return None
    from perdure.authoring.step import Step  # which imports this module

    if not isinstance(undo, Step):
        raise DefinitionError(f"{step} has undo={undo!r:.100}, which is not a step. Mark that function with @step.")
    takes, offers = signature(step.function), signature(undo.function).parameters
    for name, parameter in offers.items():
        if name != _RESULT and name not in takes.parameters and parameter.default is Parameter.empty:
            raise DefinitionError(
                f"{undo} cannot undo {step}, which has no parameter {name!r}. "
                f"Name its parameters as those of the step; {_RESULT!r} is what the step has answered."
            )
    names = tuple(name for name in offers if name != _RESULT and name in takes.parameters)
    _check_types(step, undo, names)
    return Undo(undo, step, names, _RESULT in offers, takes)


def _check_types(step: Step[Any, Any] | Child[Any, Any], undo: Step[Any, Any], names: tuple[str, ...]) -> None:
    has, wants = (get_type_hints(one.function, include_extras=True) for one in (step, undo))
    offered = {name: has.get(name, Any) for name in names}
    answer = has.get("return", Any)
    if answer is not Any:
        offered[_RESULT] = NoneType if answer is NoneType else answer | None
    for name, kind in offered.items():
        wanted = wants.get(name, Any)
        if wanted not in (Any, kind):
            shown = str(kind) if get_origin(kind) else getattr(kind, "__name__", kind)
            unknown = " (None stands for an end that nobody knows)" if name == _RESULT else ""
            raise DefinitionError(f"{undo} cannot undo {step}: write `{name}: {shown}` there{unknown}.")
