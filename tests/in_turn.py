"""What could run on several stores runs on one, in turn: ``pytest -p tests.in_turn``, as `make test` does.

Each test that can run on either database runs on one of the two. What the two promise alike is proven by tests/store,
whose tests run on both; but of SQLite in a file or in memory, and of the sealed stores, which lie over these, each test
has one. Which one follows from the test's name, so that it is always the same: three quarters of each file's tests run
on SQLite, which costs a third of what PostgreSQL costs. On sealed stores, which pass on what the store below them
answers, every fourth sentence of the conformance suite is tried. Tests that are marked as long are left out. `make
test-all` runs all on all.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

DATABASES = frozenset({"sqlite", "postgres"})
SEALED = frozenset({"sqlite_file", "postgres", "TestSealedSqlite", "TestSealedPostgresPooled"})
"""What tests of sealed stores call those that they run on: parameters, or classes of the conformance suite."""
SQLITE = frozenset({"TestSqliteFile", "TestSqliteMemory"})
"""The classes of the conformance suite whose stores differ in nothing but where their pages are."""
QUARTERED = "tests/store/sealed/test_conformance.py"
"""Of these tests three of four are left out."""
PLACES = {"tests/store/sealed/": SEALED, "tests/store/": SQLITE, "tests/": DATABASES}
"""The names of stores that make twins, by where a test stands: the first place counts."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each pair of twins the one whose turn it is not; what has no twin stays."""
    short = [item for item in items if item.get_closest_marker("long") is None]
    long = [item for item in items if item.get_closest_marker("long") is not None]
    items[:], left_out = in_turn(short)
    config.hook.pytest_deselected(items=[*long, *left_out])


def in_turn(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests whose turn it is, and the others."""
    apart = [_apart(item) for item in items]
    stores: dict[str, set[str]] = {}
    for name, store in apart:
        stores.setdefault(name, set()).add(store)
    kept, left_out = [], []
    for item, (name, store) in zip(items, apart, strict=True):
        number = blake2b(name.encode(), digest_size=1).digest()[0]
        out = name.startswith(QUARTERED) and number & 12
        (kept if store == _turn(number, stores[name]) and not out else left_out).append(item)
    return kept, left_out


def _apart(item: pytest.Item) -> tuple[str, str]:
    """A test's name without its store, and that store; a test that runs on every store is apart from its twin."""
    stores = next((known for place, known in PLACES.items() if item.nodeid.startswith(place)), DATABASES)
    given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    place, _, words = item.nodeid.partition("[")
    named = [*place.split("::")[1:-1], *given.values()]
    found = [one for one in named if isinstance(one, str) and one in stores]
    if len(found) != 1:
        return item.nodeid, ""
    others = [one for one in words.rstrip("]").split("-") if one != found[0]]
    return f"{place.replace(f'::{found[0]}::', '::')}[{'-'.join(others)}]", found[0]


def _turn(number: int, stores: set[str]) -> str:
    """The one of these stores whose turn it is: the last by name, which is the cheaper one, for three of four tests."""
    return min(stores) if number % 4 == 0 else max(stores)
