"""A review: warns of likely mistakes in workflow code, with file and line, when the workflow is defined.

A step that is called and not awaited runs beside the workflow, and its error is lost. An ``except`` that names the
error of a step is never reached, unless the step declares that class. The others are hazards of a replay.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, NoneType
from typing import Any, TypeAlias

from perdure.authoring import clock_fields, hazard
from perdure.errors import InvalidInput, PerdureError, ProcessFailed, StepTimeout
from perdure.turns.ask import Askable
from perdure.turns.sandbox.mentions import cells_of, is_users, mentions

Found: TypeAlias = Iterator[tuple[int, str]]
"""Lines, each with its warning."""

_UNKNOWN = object()
_ARRIVING = (StepTimeout, ProcessFailed, InvalidInput, AttributeError, NameError, TypeError)
"""What awaiting a step or a child may raise whatever its function raises, and what its arguments may raise."""
_PLAIN = (
    ast.Expr, ast.Assign, ast.AnnAssign, ast.Return, ast.Await, ast.Call, ast.Name, ast.Constant, ast.Attribute,
    ast.keyword, ast.Tuple, ast.expr_context,
)  # fmt: skip
"""The nodes of a body that does nothing but await steps."""
_NEVER_ASKED = (type, FunctionType, BuiltinFunctionType, NoneType)
"""What most calls call: to ask these whether they have all that an Askable has takes long."""
_told: set[tuple[str, int, str]] = set()


def review(functions: Iterable[FunctionType]) -> None:
    """Warn of what is most likely a mistake in the functions of a workflow.

    Raises DefinitionError for a call that leaves a field to the clock.
    """
    for one in functions:
        looked_at = _looked_at(one.__code__)
        if looked_at is None:
            continue
        file, before = one.__code__.co_filename, one.__code__.co_firstlineno - 1
        names = _Names(one)
        for kind, call in _made(names, looked_at):
            clock_fields.refuse(kind, call, f"{file}:{before + call.lineno}")
        for line, text in _mistakes(names, looked_at):
            if (file, before + line, text) not in _told:
                _told.add((file, before + line, text))
                warnings.warn_explicit(text, RuntimeWarning, file, before + line, one.__module__)


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """What is looked at in the source of some code, in the order of a walk; ``read`` are the names that it reads.

    ``ordering`` says in which order it asks: loops that await or call something, parameters, names assigned to.
    """

    calls: Sequence[ast.Call]
    statements: Sequence[ast.Expr | ast.Assign | ast.Try | ast.TryStar]
    read: Set[str]
    ordering: Sequence[ast.AST]


@lru_cache(maxsize=4096)
def _looked_at(code: CodeType) -> _LookedAt | None:
    """This of the code, if its source can be had. It is the same for every engine that the workflow is added to."""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))))
    except (OSError, TypeError, SyntaxError):
        return None
    return _LookedAt(
        [node for node in nodes if isinstance(node, ast.Call)],
        [node for node in nodes if isinstance(node, ast.Expr | ast.Assign | ast.Try | ast.TryStar)],
        {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)},
        _ordering(nodes),
    )


def _ordering(nodes: Sequence[ast.AST]) -> Sequence[ast.AST]:
    loops = [node for node in nodes if hazard.may_ask_for_each(node)]
    assigned = (node for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    return [*loops, *(node for node in nodes if isinstance(node, ast.arg)), *assigned] if loops else ()


class _Names:
    """What the names in a function mean, as far as it is known before it runs."""

    def __init__(self, function: FunctionType) -> None:
        code = function.__code__
        self._local = frozenset((*code.co_varnames, *code.co_cellvars))
        self._known = {**vars(builtins), **function.__globals__, **cells_of(function)}

    def value(self, node: ast.AST | None) -> Any:
        """What the expression means, or _UNKNOWN."""
        match node:
            case ast.Name(id=name) if name not in self._local:
                return self._known.get(name, _UNKNOWN)
            case ast.Attribute(value=inner, attr=name):
                owner = self.value(inner)
                return _UNKNOWN if owner is _UNKNOWN else inspect.getattr_static(owner, name, _UNKNOWN)
            case ast.Call(func=ast.Attribute(value=inner, attr="options")):
                return self.value(inner)
        return _UNKNOWN

    def asked(self, node: ast.AST | None) -> Askable | None:
        """The step or the child that the expression asks for, if it is such a call."""
        value = self.value(node.func) if isinstance(node, ast.Call) else None
        never = value is _UNKNOWN or isinstance(value, _NEVER_ASKED)
        return None if never or not isinstance(value, Askable) else value


def _made(names: _Names, looked_at: _LookedAt) -> Iterator[tuple[type, ast.Call]]:
    """The classes that the code calls, each with the call."""
    for call in looked_at.calls:
        if isinstance(kind := names.value(call.func), type):
            yield kind, call


def _mistakes(names: _Names, looked_at: _LookedAt) -> Found:
    for node in looked_at.statements:
        if isinstance(node, ast.Expr | ast.Assign):
            yield from _unawaited(names, node, looked_at.read)
        else:
            yield from _unreachable(names, node)
    yield from hazard.looks_at_files(names.value, looked_at.calls)
    yield from hazard.unordered(names.value, lambda node: names.asked(node) is not None, looked_at.ordering)


# -- a step that nobody awaits -----------------------------------------------------------------------------------------


def _unawaited(names: _Names, node: ast.Expr | ast.Assign, read: Set[str]) -> Found:
    asked = names.asked(node.value)
    if asked is None or _is_child(asked):  # the options of a child say what becomes of it at its parent's end
        return
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Name) or target.id in read or target.id.startswith("_"):
            return
    text = (
        f"{asked.noun} {asked.name!r} is called and never awaited: the workflow goes on without its result, and its "
        f"error is lost. Write `await {ast.unparse(node.value)}`."
    )
    yield node.lineno, text


def _is_child(asked: Askable) -> bool:
    return asked.noun == "child"


# -- an except that no step reaches ------------------------------------------------------------------------------------


def _unreachable(names: _Names, node: ast.Try | ast.TryStar) -> Found:
    inside = [one for statement in node.body for one in ast.walk(statement)]
    calls = [one for one in inside if isinstance(one, ast.Call)]
    asks = [asked for call in calls if (asked := names.asked(call)) is not None]
    if not asks or any(isinstance(one, ast.Raise) for one in inside):
        return
    only_asks = len(asks) == len(calls) and all(isinstance(one, _PLAIN) for one in inside)
    for handler in node.handlers:
        for kind in _classes(names, handler.type):
            if _may_arrive(kind, asks):
                continue
            if only_asks or (not _is_builtin(kind) and not any(_may_raise(names, call, kind) for call in calls)):
                yield handler.lineno, _advice(kind, asks)


def _classes(names: _Names, node: ast.expr | None) -> list[type[Exception]]:
    each = node.elts if isinstance(node, ast.Tuple) else [node]
    found = [names.value(one) for one in each]
    return [one for one in found if isinstance(one, type) and issubclass(one, Exception)]


def _is_builtin(kind: type[Exception]) -> bool:
    return kind.__module__ == "builtins"


def _may_arrive(kind: type[Exception], asks: Sequence[Askable]) -> bool:
    """Whether awaiting one of these may raise an error that is caught by that class."""
    if issubclass(kind, PerdureError) and kind.__module__ == PerdureError.__module__:
        return True
    arriving = (*_ARRIVING, *(own for asked in asks for own in asked.raises.values()))
    return any(issubclass(one, kind) for one in arriving)


def _may_raise(names: _Names, call: ast.Call, kind: type[Exception]) -> bool:
    """Whether a call that asks for no step may raise such an error; True if that cannot be known."""
    if names.asked(call) is not None:
        return False
    value = names.value(call.func)
    if value is _UNKNOWN:
        method = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant | ast.JoinedStr)
        return not (method or names.asked(_options(call)) is not None)
    if isinstance(value, FunctionType) and is_users(value):
        return any(isinstance(named, type) and issubclass(named, kind) for _, _, _, named in mentions(value))
    return _package(value) == _package(kind)


def _options(call: ast.Call) -> ast.AST | None:
    """If this call sets options of a step, a call of that step."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "options":
        return ast.Call(func=call.func.value, args=[], keywords=[])
    return None


def _package(value: Any) -> str:
    module: str = getattr(value, "__module__", None) or ""
    return module.partition(".")[0]


def _advice(kind: type[Exception], asks: Sequence[Askable]) -> str:
    name = kind.__name__
    steps = list(dict.fromkeys(asked.name for asked in asks if not _is_child(asked)))
    if not steps:
        return (
            f"`except {name}` is never reached: the error of a child arrives as ProcessFailed, whose `type` names its "
            "class. Catch that."
        )
    return (
        f"`except {name}` is never reached: the error of a step arrives as StepError. Declare the class where "
        f"{steps[0]!r} is defined, with @step(raises={name}); or catch StepError and look at its `type`."
    )
