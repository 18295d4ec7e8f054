"""Who may change what, and who knows whom: a record is changed by its own verbs, collaborators come at construction.

The figures of this page are bounds that only fall. Names stand for types here, as far as that is sound: an attribute of
a held process is known by its name, so no other class of the runtime may have one of that name that others assign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.house.tree import Module, dotted, modules, planted

OWNED = {
    "src/perdure/runtime/instance.py": "Instance",
    "src/perdure/runtime/open_steps.py": "OpenSteps",
    "src/perdure/runtime/inbox.py": "Inbox",
    "src/perdure/turns/asking.py": "AskingLoop",
}
"""Whose state nobody else may change: a process in memory with its parts, and what its code has asked for."""

MUTATORS = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
MOST_PARAMETERS = 7
"""More than that hides which collaborators belong together."""
WRITTEN_BY_USERS = frozenset({"Step", "Engine", "Retry", "Attempt", "Schedule", "State"})
"""What users write, or read field by field: all is given by keyword, and has a default where users write it."""
LARGEST_CIRCLE = {
    "perdure.turns": 7, "perdure.runtime": 1, "perdure.authoring": 8, "perdure.testing": 5, "perdure": 8
}  # fmt: skip
"""So many files may import each other in a circle, imports for annotations included, by package; 1 is none."""


def package() -> list[Module]:
    """The modules of the package, but for what is only for tests."""
    return [module for module in modules("src") if "testing" not in module.path.parts]


def slots(module: Module, name: str) -> frozenset[str]:
    """The attributes that a class declares."""
    for node in module.classes():
        if node.name == name:
            for part in node.body:
                if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "__slots__":
                    return frozenset(ast.literal_eval(part.value))
    raise AssertionError(f"{module.name} has no class {name} with slots")


CHANGING = (ast.Assign, ast.Delete, ast.AugAssign, ast.AnnAssign, ast.Call)


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement or a call changes: what is assigned, deleted, or told to change itself."""
    if isinstance(node, ast.Assign | ast.Delete):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
        yield node.func.value


def attributes_changed(module: Module) -> Iterator[tuple[int, ast.Attribute]]:
    """Attributes of other objects than ``self`` that a module changes, also by an index."""
    for node in module.nodes(*CHANGING):
        for target in targets(node):
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute) and dotted(target.value) != "self":
                yield getattr(node, "lineno", 0), target


def writes_from_outside(module: Module, owned: frozenset[str]) -> list[str]:
    """The places where a module changes what belongs to a held process."""
    found = attributes_changed(module)
    return [f"{module.name}:{line} {ast.unparse(target)}" for line, target in found if target.attr in owned]


def test_nobody_but_itself_changes_a_process_in_memory() -> None:
    by_name = {module.name: module for module in package()}
    held = [name for name in OWNED if "/runtime/" in name]
    owned = frozenset().union(*(slots(by_name[name], OWNED[name]) for name in held))
    runtime = [module for name, module in by_name.items() if "/runtime/" in name and name != held[0]]
    writes = [found for module in runtime for found in writes_from_outside(module, owned)]
    print(f"writes to an instance from outside: {len(writes)}")
    assert writes == [], "give it a verb that says what happens"


def test_nobody_but_itself_changes_what_the_code_of_a_process_has_asked_for() -> None:
    home = "src/perdure/turns/asking.py"
    [asking] = [module for module in package() if module.name == home]
    outputs = slots(asking, OWNED[home]) & {"_asks", "_outputs", "received"}
    assert len(outputs) == 3
    writes = [found for module in package() if module is not asking for found in writes_from_outside(module, outputs)]
    assert writes == [], "take_outputs() takes them, for a turn, a replay and an eviction alike"


def test_a_write_from_outside_is_found_where_it_is_planted() -> None:
    owned = frozenset({"commit", "heard", "retries", "trouble", "inputs"})
    for text in (
        "held.commit = None",
        "held.inbox.heard += 1",
        "del held.steps.retries[slot]",
        "one, held.trouble = 1, error",
        "held.inputs.append(answer)",
        "held.inputs[:0] = letters",
    ):
        assert writes_from_outside(planted(text), owned), text
    assert not writes_from_outside(planted("self.commit = None\nself.inputs.append(answer)"), owned)


def callbacks(module: Module) -> Iterator[str]:
    """Every attribute that is declared to hold a callable."""
    for node in module.nodes(ast.AnnAssign):
        if isinstance(node.target, ast.Attribute) and ast.unparse(node.annotation).startswith("Callable["):
            yield node.target.attr


def assigned_callbacks(found: list[Module]) -> list[str]:
    """Callbacks that are assigned from outside: where what is called is set, nobody can follow from where it is called.

    A function that is assigned where no attribute is declared for it counts too.
    """
    declared = {name for module in found for name in callbacks(module)}
    places = []
    for module in found:
        for node in module.nodes(ast.Assign):
            for target in targets(node):
                outside = isinstance(target, ast.Attribute) and dotted(target.value) != "self"
                called = outside and (target.attr in declared or isinstance(node.value, ast.Lambda))
                if called and ast.unparse(node.value) != "None":
                    places.append(f"{module.name}:{node.lineno} {ast.unparse(target)}")
    return places


def test_no_callback_is_assigned_from_outside() -> None:
    places = assigned_callbacks(package())
    print(f"callback attributes that are assigned from outside: {len(places)}")
    assert places == [], "give the collaborator at construction, as a small protocol"


def parameters(node: ast.FunctionDef) -> int:
    """How many parameters a method has, ``self`` left out."""
    return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1


def crowded_constructors(module: Module) -> Iterator[str]:
    """Constructors with too many parameters."""
    for node in module.classes():
        constructors = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        for part in constructors:
            if node.name not in WRITTEN_BY_USERS and parameters(part) > MOST_PARAMETERS:
                yield f"{module.name}:{part.lineno} {node.name} has {parameters(part)}"


def test_no_constructor_has_more_than_seven_parameters() -> None:
    assert [found for module in package() for found in crowded_constructors(module)] == []


def test_callbacks_and_crowds_are_found_where_they_are_planted() -> None:
    declared = "class C:\n    def __init__(self):\n        self.told: Callable[[], None] = lambda: None\n"
    assert not assigned_callbacks([planted(declared)])
    assert assigned_callbacks([planted(declared + "c = C()\nc.told = print\n")])
    assert assigned_callbacks([planted("c.other = lambda: None\n")])
    crowd = ", ".join(f"p{number}" for number in range(MOST_PARAMETERS + 1))
    assert list(crowded_constructors(planted(f"class C:\n    def __init__(self, {crowd}): ...\n")))


# -- who imports whom -------------------------------------------------------------------------------------------------


def imports() -> dict[str, set[str]]:
    """Which modules of the package each one imports, for annotations too."""
    names = {module.name[len("src/") : -len(".py")].replace("/", "."): module for module in modules("src")}
    names = {name.removesuffix(".__init__"): module for name, module in names.items()}
    return {name: set(_imported(module, set(names))) - {name} for name, module in names.items()}


def _imported(module: Module, known: set[str]) -> Iterator[str]:
    for node in module.nodes(ast.ImportFrom):
        for alias in node.names if node.module else ():
            whole = f"{node.module}.{alias.name}"
            yield from {whole if whole in known else node.module} & known


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """All that a module comes to by its imports and those of what it imports."""
    found: set[str] = set()
    left = [start]
    while left:
        for name in graph[left.pop()] - found:
            found.add(name)
            left.append(name)
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules of which each reaches every other, the largest first."""
    reach = {name: reached(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]
    }
    return sorted((sorted(group) for group in groups), key=len, reverse=True)


@cache
def circles_here() -> list[list[str]]:
    """Those of the package."""
    return circles(imports())


@pytest.mark.parametrize("part", list(LARGEST_CIRCLE))
def test_no_circle_of_imports_is_larger_than_it_was(part: str) -> None:
    within = [[name for name in group if name.startswith(part)] for group in circles_here()]
    largest = max(within, key=len, default=[])
    print(f"largest circle of files in {part}: {len(largest)} {' '.join(largest)}")
    assert len(largest) <= LARGEST_CIRCLE[part], largest


def test_a_circle_is_found_where_it_is_planted() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(graph) == [["a", "b", "c"]]
