"""One word has one meaning: no two modules name a type alike, no file has a name that only we would search for.

And one meaning has one word: what a constant of the kernel lists is not listed a second time.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.house.tree import Module, modules, planted, words

ALIKE: Mapping[str, str] = {}
"""Names of types that stand in two modules all the same, each with the reason."""

PRIVATE = frozenset(
    {
        "activation", "bell", "cell", "cells", "confinement", "crew", "crime", "dossier", "draft", "execution",
        "expiry", "fact", "gate", "grip", "guest", "hand", "haste", "inmate", "intake", "keeper", "lane", "latecomer",
        "lent", "letter", "letters", "lineage", "link", "member", "mover", "news", "notary", "outside", "pace",
        "pact", "parcel", "parking", "patching", "post", "presence", "publishing", "pulse", "purity", "relay", "seat",
        "seats", "solitary", "standing", "submission", "takeover", "terms", "unoffered", "unopened", "victim", "wall",
        "ward", "wire",
    }
)  # fmt: skip
"""Words of ours for what people who know Temporal, DBOS or PostgreSQL call otherwise; the glossary has theirs."""


def types(module: Module) -> Iterator[str]:
    """The classes of a module and the aliases at its top; a type variable means something in its own module only."""
    yield from (node.name for node in module.classes() if not node.name.startswith("_"))
    for node in module.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and _is_type(target.id) and not _is_variable(getattr(node, "value", None)):
            yield target.id


def _is_type(name: str) -> bool:
    return name[0].isupper() and not name.isupper()


def _is_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def ambiguous(every: Iterable[Module]) -> dict[str, list[str]]:
    """The names of types that stand in two modules or more, each with its modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in every:
        for name in set(types(module)):
            found[name].append(module.name)
    return {name: sorted(places) for name, places in found.items() if len(places) > 1}


def privately_named(names: Iterable[str]) -> list[str]:
    """The files among these whose name holds a private word."""
    return [name for name in names if PRIVATE & set(words(name.rpartition("/")[2].partition(".")[0]))]


def product() -> list[Module]:
    """The modules of the package, but for those that help to test it."""
    return [module for module in modules("src") if "/testing/" not in module.name]


def listed(module: Module) -> Iterator[tuple[frozenset[str], ast.expr]]:
    """The members of enums that are written side by side, as in ``(Status.HELD, Status.BROKEN)``."""
    for node in module.nodes(ast.Set, ast.Tuple, ast.List):
        if len(node.elts) > 1 and all(map(_is_member, node.elts)):
            yield frozenset(map(ast.unparse, node.elts)), node


def _is_member(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.isupper() and _is_type(ast.unparse(node.value))


def constants(kernel: Iterable[Module]) -> dict[frozenset[str], ast.expr]:
    """What the constants at the top of these modules list, with the place where they do."""
    found = {}
    for module in kernel:
        tops = (node for node in module.tree.body if isinstance(node, ast.Assign))
        values = {id(one) for node in tops for one in (node.value, *getattr(node.value, "args", ()))}
        found |= {members: node for members, node in listed(module) if id(node) in values}
    return found


def listed_again(kernel: Iterable[Module], every: Iterable[Module]) -> list[str]:
    """Where members of enums are listed for which a constant of the kernel stands."""
    named = constants(kernel)
    return [
        f"{module.name}:{node.lineno}"
        for module in every
        for members, node in listed(module)
        if named.get(members, node) is not node
    ]


def test_no_two_modules_name_a_type_alike() -> None:
    found = ambiguous(product())
    assert {name: places for name, places in found.items() if name not in ALIKE} == {}
    assert [name for name in ALIKE if name not in found] == []


def test_no_file_is_named_by_a_word_that_only_we_would_search_for() -> None:
    assert privately_named(module.name for module in modules("src")) == []


def test_what_a_constant_of_the_kernel_lists_is_listed_once() -> None:
    assert listed_again([one for one in product() if "/kernel/" in one.name], product()) == []


def test_what_is_listed_a_second_time_is_found() -> None:
    one = planted("ENDS = frozenset({Status.FAILED, Status.COMPLETED})", "src/perdure/kernel/0.py")
    for text in ("status in (Status.COMPLETED, Status.FAILED)", "_ENDS = [Status.FAILED, Status.COMPLETED]"):
        assert listed_again([one], [one, planted(text, "src/perdure/1.py")]) == ["src/perdure/1.py:1"]
    assert listed_again([one], [one, planted("status in (Status.HELD, Status.FAILED)", "src/perdure/1.py")]) == []


def test_a_second_meaning_and_a_private_file_name_are_found() -> None:
    one, other = (
        planted(text, f"src/perdure/{n}.py") for n, text in enumerate(("class Step: ...", "Step = int | str"))
    )
    assert ambiguous([one, other]) == {"Step": ["src/perdure/0.py", "src/perdure/1.py"]}
    assert ambiguous([one, one_variable()]) == {}
    assert privately_named(["src/perdure/store/sqlite/bell.py", "src/perdure/handover.py"]) == [
        "src/perdure/store/sqlite/bell.py"
    ]


def one_variable() -> Module:
    """A module whose type variable has the name of another module's type."""
    return planted('Step = TypeVar("Step")', "src/perdure/2.py")
