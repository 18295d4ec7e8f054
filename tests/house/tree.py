"""The project's files as the house tests read them: names, syntax trees, named things."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "perdure"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


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
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of its tree: a dozen tests look through all files, and finding the nodes takes longest."""
        return tuple(ast.walk(self.tree))

    def functions(self) -> Iterator[FunctionNode]:
        """Every function and method, nested ones too."""
        return (node for node in self.nodes if isinstance(node, FunctionNode))

    def classes(self) -> Iterator[ast.ClassDef]:
        """Every class."""
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    def definitions(self) -> dict[str, DefinitionNode]:
        """Top-level functions and classes by name, methods as ``Class.method``."""
        found: dict[str, DefinitionNode] = {}
        for node in self.tree.body:
            if isinstance(node, DefinitionNode):
                found[node.name] = node
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{part.name}": part for part in node.body if isinstance(part, DefinitionNode)}
        return found

    def names(self) -> set[str]:
        """Definitions and whatever else is assigned at the top of the file or of a class."""
        found = set(self.definitions())
        scopes = [("", self.tree.body), *((f"{node.name}.", node.body) for node in self.classes())]
        for prefix, body in scopes:
            for node in body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                found |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
        return found


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
def parsed(path: Path) -> Module:
    """The module at that path."""
    text = path.read_text(encoding="utf-8")
    return Module(path, text, ast.parse(text))


def modules(*folders: str) -> list[Module]:
    """Every Python file of the project below the given folders (from the root)."""
    homes = [ROOT / folder for folder in folders]
    found = [path for path in tracked() if path.suffix == ".py" and any(home in path.parents for home in homes)]
    assert found, f"no Python file below {folders}"
    return [parsed(path) for path in found]


def planted(text: str, name: str = "src/perdure/planted.py") -> Module:
    """A module that exists only in a test, to show that a check can fail."""
    return Module(ROOT / name, text, ast.parse(text))


def words(name: str) -> list[str]:
    """The words of a name, whether written in_this_way or InThatWay."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def counted() -> dict[str, set[str]]:
    """Every test of the project: the file's name to the test names in it, also those of the conformance suite."""
    return {
        module.name: {node.name for node in module.functions() if node.name.startswith("test_")}
        for module in modules("tests", "src/perdure/testing")
    }
