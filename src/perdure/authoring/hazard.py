"""Hazards: what a replay may answer in another way, where no turn can refuse it; the review warns of them.

Python gives texts other hashes in each OS process, and a set iterates in the order of the hashes. Looks at files
(``os.path.exists``) cause no audit event.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import PurePath
from typing import Any, TypeAlias

Value: TypeAlias = Callable[[ast.AST | None], Any]
"""What an expression means, as far as it is known before it runs."""

Repetition: TypeAlias = ast.For | ast.ListComp | ast.GeneratorExp | ast.DictComp

_LOOKS = {
    id(getattr(module, name)): f"{shown}.{name}"
    for module, shown, names in (
        (os, "os", "access lstat stat"),
        (os.path, "os.path", "exists getatime getctime getmtime getsize isdir isfile islink ismount lexists samefile"),
    )
    for name in names.split()
}
_PATH_LOOKS = frozenset({"exists", "is_dir", "is_file", "is_mount", "is_symlink", "lstat", "owner", "samefile", "stat"})
_TEXTS = (str, bytes)


def looks_at_files(value: Value, calls: Iterable[ast.Call]) -> Iterator[tuple[int, str]]:
    """The lines of calls that look whether or how a file is there, each with its warning."""
    for call in calls:
        name = _LOOKS.get(id(value(call.func)))
        if name is None and isinstance(call.func, ast.Attribute) and call.func.attr in _PATH_LOOKS:
            name = f"Path.{call.func.attr}" if _is_path(value, call.func.value) else None
        if name is not None:
            text = (
                f"{name}() looks at this machine, and looks again at every replay, on whatever machine that is. "
                "Move it into a function marked @step."
            )
            yield call.lineno, text


def _is_path(value: Value, node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_path(value, node.left) or _is_path(value, node.right)
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        return _is_path(value, node.value)
    if isinstance(node, ast.Call):
        made = value(node.func)
        return isinstance(made, type) and issubclass(made, PurePath)
    return isinstance(value(node), PurePath)


def unordered(value: Value, asks: Callable[[ast.AST], bool], nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The lines of loops that await or ask for something for each text of a set, each with its warning.

    ``nodes`` are the loops that may do so, the parameters, and the names that are assigned to.
    """
    nodes = list(nodes)
    loops = [node for node in nodes if isinstance(node, Repetition)]
    sets = _sets_of_texts(value, nodes) if loops else set()
    for node in loops:
        if not any(isinstance(one, ast.Await) or asks(one) for one in _repeated(node)):
            continue
        over = node.iter if isinstance(node, ast.For) else node.generators[0].iter
        if (isinstance(over, ast.Name) and over.id in sets) or _shows_texts(over):
            shown = ast.unparse(over)
            text = (
                f"this loop takes the texts of the set {shown:.80} in another order in each OS process, so that a "
                f"replay would not find its steps. Write `in sorted({shown:.80})`."
            )
            yield over.lineno, text


def may_ask_for_each(node: ast.AST) -> bool:
    """Whether this is a loop that awaits or calls something for each of what it iterates over."""
    return isinstance(node, Repetition) and any(isinstance(one, ast.Await | ast.Call) for one in _repeated(node))


def _repeated(loop: Repetition) -> Iterator[ast.AST]:
    """The nodes of what is done for each."""
    parts: list[ast.AST]
    if isinstance(loop, ast.For):
        parts = [*loop.body]
    elif isinstance(loop, ast.DictComp):
        parts = [loop.key, loop.value]
    else:
        parts = [loop.elt]
    return (one for part in parts for one in ast.walk(part))


def _sets_of_texts(value: Value, nodes: Iterable[ast.AST]) -> Set[str]:
    """The parameters that are annotated as sets of texts, and never become anything else."""
    found, changed = set(), set()
    for node in nodes:
        if isinstance(node, ast.arg) and _is_set_of_texts(value, node.annotation):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            changed.add(node.id)
    return found - changed


def _is_set_of_texts(value: Value, annotation: ast.expr | None) -> bool:
    if not isinstance(annotation, ast.Subscript):
        return False
    kind = value(annotation.value)
    kind = getattr(kind, "__origin__", kind)  # typing.AbstractSet
    return isinstance(kind, type) and issubclass(kind, Set) and value(annotation.slice) in _TEXTS


def _shows_texts(node: ast.expr) -> bool:
    return isinstance(node, ast.Set) and any(isinstance(getattr(one, "value", None), _TEXTS) for one in node.elts)
