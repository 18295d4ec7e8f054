"""The project's files as the house tests read them: names, syntax trees, named things."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "perdure"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
N = TypeVar("N", bound=ast.AST)


@dataclass(frozen=True)
class Module:
    """One Python file: its path from the root, its text, its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The path as people write it."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[ast.AST]]:
        return by_kind(self.tree)

    def nodes(self, *kinds: type[N]) -> Iterator[N]:
        """Every node of these kinds: a dozen tests look through all files, each for few among a million nodes."""
        for kind in kinds:
            yield from self._by_kind.get(kind, ())  # type: ignore[misc]

    def functions(self) -> Iterator[FunctionNode]:
        """Every function and method, nested ones too."""
        yield from self.nodes(ast.FunctionDef)
        yield from self.nodes(ast.AsyncFunctionDef)

    def classes(self) -> Iterator[ast.ClassDef]:
        """Every class."""
        return self.nodes(ast.ClassDef)

    def definitions(self) -> dict[str, DefinitionNode]:
        """Top-level functions and classes by name, methods as ``Class.method``."""
        found: dict[str, DefinitionNode] = {}
        for node in self.tree.body:
            if isinstance(node, DefinitionNode):
                found[node.name] = node
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{part.name}": part for part in node.body if isinstance(part, DefinitionNode)}
        return found

    @cached_property
    def names(self) -> set[str]:
        """Definitions and whatever else is assigned at the top of the file or of a class."""
        found = set(self.definitions())
        scopes = [("", self.tree.body), *((f"{node.name}.", node.body) for node in self.classes())]
        for prefix, body in scopes:
            for node in body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                found |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
        return found


def by_kind(root: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    """A node and all below it by their type, in the order of their depth; not what says that a name is only read."""
    found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    waiting = [root]
    for node in waiting:  # it grows
        kind = node.__class__
        found[kind].append(node)
        for name in kind._fields:
            part = getattr(node, name, None) if name != "ctx" else None
            if part.__class__ is list:
                waiting += [one for one in part if isinstance(one, ast.AST)]
            elif isinstance(part, ast.AST):
                waiting.append(part)
    return found


def dotted(node: ast.expr) -> str:
    """A name as it is written, as ``time.time``; what an attribute is taken of, if it has no name, is ``()``."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "()"


@cache
def tracked() -> tuple[Path, ...]:
    """The files that belong to the project: those git knows or would add; without git, all but hidden folders."""
    listing = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(p.startswith(".") for p in path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def named() -> dict[str, list[Path]]:
    """The files of the project by the last part of their path."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in tracked():
        found[path.name].append(path)
    return found


@cache
def parsed(path: Path) -> Module:
    """The module at that path."""
    text = path.read_text(encoding="utf-8")
    return Module(path, text, ast.parse(text))


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Every Python file of the project below the given folders (from the root)."""
    homes = tuple(f"{ROOT / folder}/" for folder in folders)
    found = [path for path in tracked() if path.suffix == ".py" and str(path).startswith(homes)]
    assert found, f"no Python file below {folders}"
    return tuple(parsed(path) for path in found)


def planted(text: str, name: str = "src/perdure/planted.py") -> Module:
    """A module that exists only in a test, to show that a check can fail."""
    return Module(ROOT / name, text, ast.parse(text))


def words(name: str) -> list[str]:
    """The words of a name, whether written in_this_way or InThatWay."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


@cache
def every_test() -> frozenset[str]:
    """The names of every test of the project, also of those of the conformance suite."""
    functions = (node for module in modules("tests", "src/perdure/testing") for node in module.functions())
    return frozenset(node.name for node in functions if node.name.startswith("test_"))
