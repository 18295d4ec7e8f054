"""A definition: what must hold for a function that is marked as a step or a workflow."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

from perdure.clock import in_seconds
from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.names import check_name


def definition_of(function: FunctionType) -> str:
    """The module and name of a function, the same in every OS process, also in one that runs the module as program."""
    module = function.__module__
    if module == "__main__" and (spec := sys.modules[module].__spec__) is not None:
        module = spec.name
    if "." not in module:
        module = _dotted(Path(function.__code__.co_filename), module)
    return f"{module}:{function.__qualname__}"


def _dotted(file: Path, module: str) -> str:
    """The full name of a module whose file was run, or imported by its path: with the packages around it."""
    if module not in ("__main__", file.stem):
        return module
    parts = [file.stem]
    for folder in file.absolute().parents:
        if not (folder / "__init__.py").exists():
            break
        parts.insert(0, folder.name)
    return ".".join(parts)


def origin_of(function: FunctionType) -> str:
    """Where a function is defined, if that means the same in every OS process; else empty.

    It does not for a function that is defined inside another one, or typed into an interpreter or a notebook, or made
    by ``exec`` without a module.
    """
    if not function.__module__:
        return ""
    typed_in = function.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    origin = "" if typed_in else definition_of(function)
    return "" if "<" in origin else origin


def name_of(function: FunctionType, given: str | None, what: str) -> str:
    """The name of a step or workflow: the one given, or the function's qualified name; raises DefinitionError."""
    name = given
    if name is None:
        name = function.__qualname__.rpartition("<locals>.")[2]
        if not name or "<" in name:
            raise DefinitionError(f"a {what} needs a name of its own. Use a named function, or @{what}(name=...).")
    try:
        return check_name(name, f"the name of the {what}")
    except InvalidKey as error:
        raise DefinitionError(str(error)) from None


def plain_function(function: Any, what: str) -> FunctionType:
    """The function that is marked, if it is one that can be called by its name alone; raises DefinitionError."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if not isinstance(function, FunctionType):
        raise DefinitionError(f"@{what} marks functions, not {function!r:.100}. Mark a `def` or an `async def`.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{function.__qualname__} yields. A {what} is a function that returns its result.")
    if inspect.iscoroutinefunction(inspect.unwrap(function)) and not inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{function.__qualname__} is an `async def` inside an ordinary decorator. "
            f"Put @{what} directly above it, or make that decorator's wrapper an `async def`."
        )
    owner = function.__qualname__.rpartition("<locals>.")[2].rpartition(".")[0]
    if owner and next(iter(inspect.signature(function).parameters), None) in ("self", "cls"):
        raise DefinitionError(
            f"{function.__qualname__} is a method, and its object would not survive. "
            f"Mark a function of the module, or a staticmethod."
        )
    return function


def seconds(what: str, value: Any, owner: str) -> float | None:
    """A duration in seconds as a float, or None; raises DefinitionError."""
    value = in_seconds(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise DefinitionError(f"{owner} has {what}={value!r}. Give seconds or a timedelta, more than 0 and finite.")
    return float(value)
