"""Mentions: what a function's code names, and what the user's own functions among these name, before it runs."""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

_NOTHING = object()
_TRANSPARENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "RESUME", "COPY_FREE_VARS"})


class Meanings:
    """What the names in some code meant when it was read; ``values`` are all that it names.

    Code is read anew for each engine, since more may be defined by then. That takes long, and to look whether a name
    still means the same does not.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._found: list[tuple[Mapping[str, Any], str, Any]] = []
        self._cells: list[tuple[FunctionType, Mapping[str, Any]]] = []

    def look_up(self, names: Mapping[str, Any], name: str, otherwise: Any = _NOTHING) -> Any:
        """What the name means among these; if it is none of them, what it means ``otherwise``."""
        value = names.get(name, _NOTHING)
        self._found.append((names, name, value))
        return otherwise if value is _NOTHING else value

    def attribute(self, owner: ModuleType | type, name: str) -> Any:
        """What an attribute of a module or a class is, without calling anything."""
        for one in owner.__mro__ if isinstance(owner, type) else (owner,):
            self.look_up(vars(one), name)
        return inspect.getattr_static(owner, name, _NOTHING)

    def parts(self, function: FunctionType) -> tuple[CodeType, Mapping[str, Any], Mapping[str, Any]]:
        """The code of a function, and where its names are looked up."""
        cells = cells_of(function)
        if function.__closure__:
            self._cells.append((function, cells))
        return function.__code__, function.__globals__, cells

    def stand(self) -> bool:
        """Whether each name still means the same, or still nothing."""
        if any(names.get(name, _NOTHING) is not value for names, name, value in self._found):
            return False
        return all(_are_the_same(cells_of(function), cells) for function, cells in self._cells)


def _are_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def mentions(function: FunctionType, meanings: Meanings | None = None) -> Iterator[tuple[CodeType, Any, str, Any]]:
    """All that the function names, its own functions and those it calls too: (code, owner or None, name, value).

    What the names mean is added to ``meanings``.
    """
    meanings = meanings or Meanings()
    seen: set[CodeType] = set()
    waiting: list[tuple[CodeType, Mapping[str, Any], Mapping[str, Any]]] = [meanings.parts(function)]
    while waiting:
        code, names, cells = waiting.pop()
        if code in seen:
            continue
        seen.add(code)
        for owner, name, value in _mentions(code, names, cells, meanings):
            meanings.values.append(value)
            yield code, owner, name, value
            if isinstance(value, FunctionType) and is_users(value):
                waiting.append(meanings.parts(value))
        waiting += [(inner, names, {}) for inner in code.co_consts if isinstance(inner, CodeType)]


def cells_of(function: FunctionType) -> dict[str, Any]:
    """The names that the function takes from the functions around it, as far as they have a value by now."""
    cells: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return cells


@cache
def _not_the_users() -> tuple[str, ...]:
    """How the paths of code begin that is not the user's own."""
    import sysconfig

    return (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<")


def is_users(function: FunctionType) -> bool:
    """Whether a function is of the user's own code: not of the standard library, of a package, or of this one."""
    return not (function.__code__.co_filename.startswith(_not_the_users()) or is_own(function))


def is_own(function: FunctionType) -> bool:
    """Whether a function is a part of Perdure."""
    return (function.__module__ or "").partition(".")[0] == __name__.partition(".")[0]


def _mentions(
    code: CodeType, names: Mapping[str, Any], cells: Mapping[str, Any], meanings: Meanings
) -> Iterator[tuple[Any, str, Any]]:
    """What the code names, as far as it is known before it runs: (owner or None, name, value)."""
    local: dict[str, Any] = {}
    constant: Any = None
    module: Any = _NOTHING
    value: Any = _NOTHING
    for kind, name in _instructions(code):
        owner: Any = None
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = meanings.look_up(names, name, getattr(builtins, name, _NOTHING))
        elif kind == "LOAD_DEREF":
            value = cells.get(name, local.get(name, _NOTHING))
        elif kind.startswith("LOAD_FAST"):
            name = name[-1] if isinstance(name, tuple) else name
            value = local.get(name, _NOTHING)
        elif kind in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType | type):
            owner, value = value, meanings.attribute(value, name)
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        elif kind == "IMPORT_NAME":
            module = meanings.look_up(sys.modules, name)
            value = (
                module if constant else meanings.look_up(sys.modules, name.partition(".")[0])
            )  # from x.y import z, or x
            continue
        elif kind == "IMPORT_FROM":
            value = getattr(module, name, _NOTHING)
            meanings.look_up(getattr(module, "__dict__", {}), name)
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
