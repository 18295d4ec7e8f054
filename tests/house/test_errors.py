"""The errors are drawn as they are derived, and the guide says of each what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure import errors
from tests.house.page import DOCS

BRANCH = re.compile(r"^    ([│ ]*)[├└]── (\w+)", re.MULTILINE)
ABSTRACT = {"PerdureError", "InvalidInput", "ProcessError", "StoreError"}


def drawn(tree: str) -> Iterator[tuple[str, str]]:
    """Each error of a tree, with the one from which it is drawn as derived."""
    path = ["PerdureError"]
    for indent, name in BRANCH.findall(tree):
        path[len(indent) // 4 + 1 :] = [name]
        yield name, path[-2]


def test_the_tree_of_errors_is_read_by_its_indents() -> None:
    tree = "    Top\n    ├── A     text\n    │   └── B  text\n    └── C\n        └── D  text"
    assert list(drawn(tree)) == [("A", "PerdureError"), ("B", "A"), ("C", "PerdureError"), ("D", "C")]


def test_the_tree_of_errors_has_each_error_under_the_one_from_which_it_derives() -> None:
    derived = {
        error.__name__: error.__bases__[0].__name__
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.PerdureError) and error is not errors.PerdureError
    }
    assert dict(drawn(errors.__doc__ or "")) == derived


def test_every_error_is_public_and_stands_on_the_page_of_errors() -> None:
    names = {name for name, _ in drawn(errors.__doc__ or "")}
    assert set(errors.__all__) == names | {"PerdureError"}
    page = (DOCS / "guide" / "19-errors.md").read_text(encoding="utf-8")
    assert sorted(name for name in names - ABSTRACT if not re.search(rf"\b{name}\b", page)) == []
