"""Mentions: what a function's code names, and what the user's own functions among these name, before it runs."""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

_NOTHING = object()
_TRANSPARENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME", "COPY_FREE_VARS"})
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def mentions(function: FunctionType) -> Iterator[tuple[CodeType, Any, str, Any]]:
    """All that the function names, its own functions and those it calls too: (code, owner or None, name, value)."""
    seen: set[CodeType] = set()
    waiting: list[tuple[CodeType, Mapping[str, Any], Mapping[str, Any]]] = [_parts(function)]
    while waiting:
        code, names, cells = waiting.pop()
        if code in seen:
            continue
        seen.add(code)
        for owner, name, value in _mentions(code, names, cells):
            yield code, owner, name, value
            if isinstance(value, FunctionType) and is_users(value):
                waiting.append(_parts(value))
        waiting += [(inner, names, {}) for inner in code.co_consts if isinstance(inner, CodeType)]


def _parts(function: FunctionType) -> tuple[CodeType, Mapping[str, Any], Mapping[str, Any]]:
    return function.__code__, function.__globals__, cells_of(function)


def cells_of(function: FunctionType) -> dict[str, Any]:
    """The names that the function takes from the functions around it, as far as they have a value by now."""
    cells: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return cells


def is_users(function: FunctionType) -> bool:
    """Whether a function is of the user's own code: not of the standard library, of a package, or of this one."""
    file = function.__code__.co_filename
    module = function.__module__ or ""
    return not (file.startswith((*_LIBRARIES, "<")) or module.partition(".")[0] == __name__.partition(".")[0])


def _mentions(code: CodeType, names: Mapping[str, Any], cells: Mapping[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    """What the code names, as far as it is known before it runs: (owner or None, name, value)."""
    local: dict[str, Any] = {}
    constant: Any = None
    module: Any = _NOTHING
    value: Any = _NOTHING
    for kind, name in _instructions(code):
        owner: Any = None
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = names.get(name, getattr(builtins, name, _NOTHING))
        elif kind == "LOAD_DEREF":
            value = cells.get(name, local.get(name, _NOTHING))
        elif kind.startswith("LOAD_FAST"):
            name = name[-1] if isinstance(name, tuple) else name
            value = local.get(name, _NOTHING)
        elif kind in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType | type):
            owner, value = value, inspect.getattr_static(value, name, _NOTHING)
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        elif kind == "IMPORT_NAME":
            module = sys.modules.get(name, _NOTHING)
            value = module if constant else sys.modules.get(name.partition(".")[0], _NOTHING)  # from x.y import z, or x
            continue
        elif kind == "IMPORT_FROM":
            value = getattr(module, name, _NOTHING)
            continue
        elif kind in ("STORE_FAST", "STORE_DEREF") and value is not _NOTHING:
            local[name] = value
            value = _NOTHING
            continue
        else:
            value = _NOTHING
            constant = name
        if value is not _NOTHING:
            yield owner, name, value


@lru_cache(maxsize=4096)
def _instructions(code: CodeType) -> Sequence[tuple[str, Any]]:
    """What the code does: names and arguments of its instructions. A workflow is looked at anew for each engine."""
    every = ((instruction.opname, instruction.argval) for instruction in dis.get_instructions(code))
    return [(kind, name) for kind, name in every if kind not in _TRANSPARENT]
