"""Rooms have walls: the size of files, functions and classes, and what a front door may hold."""

from __future__ import annotations

import ast
from asyncio import AbstractEventLoop
from collections.abc import Iterator

from tests.house.tree import PACKAGE, Module, modules, planted

FILE_LINES = 400
FUNCTION_LINES = 50
CLASS_METHODS = 20
FRONT_DOOR_NAMES = 45
TOP_MODULES = 14
"""In no room: the plan had twelve, and why it is two more stands in docs/decisions/house.md."""
EVERYWHERE = ("src", "tests", "docs", "examples", "bench")


def long_files(module: Module) -> Iterator[str]:
    """The file, if it is over its length."""
    lines = len(module.text.splitlines())
    if lines > FILE_LINES:
        yield f"{module.name} has {lines} lines; split it along a noun"


def long_functions(module: Module) -> Iterator[str]:
    """Functions that do not fit a screen, counted from the name to the last line, without the docstring."""
    for node in module.functions():
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        first = node.body[0]
        if ast.get_docstring(node) is not None:
            lines -= (first.end_lineno or first.lineno) - first.lineno + 1
        if lines > FUNCTION_LINES:
            yield f"{module.name}:{node.lineno} {node.name} has {lines} lines"


def crowded_classes(module: Module) -> Iterator[str]:
    """Classes with too many public methods of their own; a suite's tests and an asyncio loop's duties do not count."""
    for node in module.classes():
        methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
        public = [name for name in methods if not name.startswith(("_", "test_"))]
        own = [name for name in public if not hasattr(AbstractEventLoop, name)]
        if len(own) > CLASS_METHODS:
            yield f"{module.name}:{node.lineno} {node.name} has {len(own)} public methods"


def test_no_file_is_longer_than_400_lines() -> None:
    assert [found for module in modules(*EVERYWHERE) for found in long_files(module)] == []


def test_no_function_is_longer_than_a_screen() -> None:
    assert [found for module in modules(*EVERYWHERE) for found in long_functions(module)] == []


def test_no_class_has_more_than_20_public_methods() -> None:
    assert [found for module in modules(*EVERYWHERE) for found in crowded_classes(module)] == []


def test_few_modules_lie_at_the_top_of_the_package() -> None:
    top = sorted(path.name for path in PACKAGE.glob("*.py"))
    print(f"modules at the top: {len(top)}")
    assert len(top) <= TOP_MODULES, f"give it a room: {top}"


def test_the_walls_stop_what_is_too_large() -> None:
    body = "\n".join(f"    x{n} = {n}" for n in range(FUNCTION_LINES + 1))
    methods = "\n".join(f"    def m{n}(self): ..." for n in range(CLASS_METHODS + 1))
    assert list(long_functions(planted(f"def f():\n{body}\n")))
    assert list(crowded_classes(planted(f"class C:\n{methods}\n")))
    assert list(long_files(planted("x = 1\n" * (FILE_LINES + 1))))


def _imports_late(node: ast.stmt) -> bool:
    """Whether this is the text that belongs to ``_LATE``, or what Python asks a module for names that come late."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.If) and {getattr(part, "name", "") for part in node.body} == {"__getattr__", "__dir__"}


def front_door_faults(module: Module) -> Iterator[str]:
    """What a front door must not hold: logic, an unsorted or long ``__all__``, a name that is not there."""
    names: list[str] = []
    imported: set[str] = set()
    for place, node in enumerate(module.tree.body):
        if isinstance(node, ast.ImportFrom | ast.Import):
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            imported.add(node.targets[0].id)
            if node.targets[0].id == "__all__":
                names = [str(name) for name in ast.literal_eval(node.value)]
            elif not isinstance(node.value, ast.Constant) and node.targets[0].id != "_LATE":
                yield f"line {node.lineno} computes something"
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            late = [part for part in node.body if isinstance(part, ast.ImportFrom)]
            imported |= {alias.name for part in late for alias in part.names}
        elif not (place == 0 and ast.get_docstring(module.tree)) and not _imports_late(node):
            yield f"line {node.lineno} is neither an import nor a name"
    if names != sorted(names) or len(set(names)) != len(names):
        yield f"__all__ is not sorted: {names}"
    if len(names) > FRONT_DOOR_NAMES:
        yield f"__all__ has {len(names)} names"
    if missing := set(names) - imported:
        yield f"__all__ names what is not there: {sorted(missing)}"


def test_a_front_door_has_few_sorted_names_and_no_logic() -> None:
    doors = [module for module in modules("src") if module.path.name == "__init__.py"]
    assert [f"{door.name}: {fault}" for door in doors for fault in front_door_faults(door)] == []


def test_the_front_door_names_everything_that_it_lets_in() -> None:
    (door,) = (module for module in modules("src") if module.name == "src/perdure/__init__.py")
    assigned = [node for node in door.tree.body if isinstance(node, ast.Assign)]
    (listed,) = (node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__")
    imports = [node for node in ast.walk(door.tree) if isinstance(node, ast.ImportFrom)]
    public = [node for node in imports if (node.module or "").startswith("perdure")]
    imported = {alias.asname or alias.name for node in public for alias in node.names}
    assert imported <= set(ast.literal_eval(listed))


def test_a_front_door_with_logic_or_disorder_is_refused() -> None:
    many = [f"n{number:02}" for number in range(FRONT_DOOR_NAMES + 1)]
    for wrong in (
        '"""Door."""\nfor x in []:\n    pass\n',
        '"""Door."""\nfrom a import b, c\n__all__ = ["c", "b"]\n',
        '"""Door."""\n__all__ = ["absent"]\n',
        '"""Door."""\nx = f()\n',
        f'"""Door."""\nfrom a import {", ".join(many)}\n__all__ = {many}\n',
    ):
        assert list(front_door_faults(planted(wrong))), wrong
