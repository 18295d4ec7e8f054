"""Clock fields, which a class fills in from the clock if a call leaves them out: ``default_factory=datetime.now``.

Such a factory runs inside the class, where no turn can answer it; so the call is refused when the workflow is defined.
"""

from __future__ import annotations

import ast
import inspect
from datetime import date
from types import FunctionType
from typing import Any

from perdure.errors import DefinitionError
from perdure.turns.sandbox import overrides, static_check
from perdure.turns.sandbox.mentions import is_users


def refuse(kind: type, call: ast.Call, where: str) -> None:
    """Raise DefinitionError if this call of the class leaves a field to the clock."""
    factories = _factories(kind)
    for name in _left_out(kind, call, factories) if factories else ():
        factory = factories[name]
        if _reads_clock(factory):
            raise DefinitionError(
                f"{kind.__name__}(...) at {where} would differ at every replay: its field {name!r} is filled in by "
                f"{getattr(factory, '__qualname__', factory)}(). Give it: {name}=perdure.now()."
            )
        if isinstance(factory, FunctionType) and is_users(factory):
            static_check.check(factory, f"{kind.__name__}(...) at {where}")


def _factories(kind: type) -> dict[str, Any]:
    """The default factories of a dataclass, or of a class of msgspec, attrs or pydantic, by field."""
    found = {name: field.default_factory for name, field in getattr(kind, "__dataclass_fields__", {}).items()}
    found |= {name: field.default_factory for name, field in getattr(kind, "__pydantic_fields__", {}).items()}
    found |= {one.name: getattr(one.default, "factory", None) for one in getattr(kind, "__attrs_attrs__", ())}
    fields, defaults = getattr(kind, "__struct_fields__", ()), getattr(kind, "__struct_defaults__", ())
    last = fields[len(fields) - len(defaults) :]
    found |= {name: getattr(value, "factory", None) for name, value in zip(last, defaults, strict=True)}
    return {name: factory for name, factory in found.items() if callable(factory)}


def _left_out(kind: type, call: ast.Call, names: dict[str, Any]) -> list[str]:
    """Which of these fields the call does not give, as far as its code tells."""
    given = {keyword.arg for keyword in call.keywords}
    if None in given or any(isinstance(one, ast.Starred) for one in call.args):
        return []
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return []
    by_place = [one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY][: len(call.args)]
    return [name for name in names if name not in given and name not in by_place]


def _reads_clock(factory: Any) -> bool:
    owner = getattr(factory, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, date):
        return factory.__name__ in static_check.READERS
    if isinstance(factory, overrides.Override):
        return False  # in a turn it answers as the turn does
    return id(factory) in overrides.originals()
