"""A definition: what must hold for a function that is marked as a step or a workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.names import check_name


def name_of(function: Callable[..., Any], given: str | None, what: str) -> str:
    """The name of a step or workflow: the one given, or the function's qualified name; raises DefinitionError."""
    if not callable(function):
        raise DefinitionError(f"@{what} marks functions, not {function!r}.")
    name = given
    if name is None:
        name = getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
        if not name or "<" in name:
            raise DefinitionError(f"a {what} needs a name of its own. Use a named function, or @{what}(name=...).")
    try:
        return check_name(name, f"the name of the {what}")
    except InvalidKey as error:
        raise DefinitionError(str(error)) from None
