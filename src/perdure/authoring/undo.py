"""An undo: the step that undoes another step or a child, and the arguments that it gets."""

from __future__ import annotations

from inspect import Parameter, signature
from types import NoneType
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from perdure.errors import DefinitionError
from perdure.turns.ask import RESULT, Undo

if TYPE_CHECKING:
    from perdure.authoring.child import Child
    from perdure.authoring.step import Step


def undo_of(step: Step[Any, Any] | Child[Any, Any], undo: Any) -> Undo | None:
    """The undo that ``undo=...`` names, if it can be called with what is known then; raises DefinitionError."""
    if undo is None:
        return None
    from perdure.authoring.step import Step  # which imports this module

    if not isinstance(undo, Step):
        raise DefinitionError(f"{step} has undo={undo!r:.100}, which is not a step. Mark that function with @step.")
    takes, offers = signature(step.function), signature(undo.function).parameters
    for name, parameter in offers.items():
        if name != RESULT and name not in takes.parameters and parameter.default is Parameter.empty:
            raise DefinitionError(
                f"{undo} cannot undo {step}, which has no parameter {name!r}. "
                f"Name its parameters as those of the step; {RESULT!r} is what the step has answered."
            )
    names = tuple(name for name in offers if name != RESULT and name in takes.parameters)
    _check_types(step, undo, names)
    return Undo(undo, step, names, RESULT in offers, takes)


def _check_types(step: Step[Any, Any] | Child[Any, Any], undo: Step[Any, Any], names: tuple[str, ...]) -> None:
    has, wants = (get_type_hints(one.function, include_extras=True) for one in (step, undo))
    offered = {name: has.get(name, Any) for name in names}
    answer = has.get("return", Any)
    if answer is not Any:
        offered[RESULT] = NoneType if answer is NoneType else answer | None
    for name, kind in offered.items():
        wanted = wants.get(name, Any)
        if wanted not in (Any, kind):
            shown = str(kind) if get_origin(kind) else getattr(kind, "__name__", kind)
            unknown = " (None says that the result is unknown)" if name == RESULT else ""
            raise DefinitionError(f"{undo} cannot undo {step}: write `{name}: {shown}` there{unknown}.")
