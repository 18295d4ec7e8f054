"""What could run on several stores runs on one, in turn: ``pytest -p tests.in_turn``, as `make test` does.

Each test that can run on either database runs on one of the two. What the two promise alike is proven by tests/store,
whose tests run on both; but of the sealed stores, which lie over these, each test has one: over SQLite or over
PostgreSQL. Which one follows from the test's name, so that it is always the same, and half of each file's tests stand
on each. `make test-all` runs all on all.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

DATABASES = frozenset({"sqlite", "postgres"})
SEALED = frozenset({"sqlite_file", "postgres", "TestSealedSqlite", "TestSealedPostgresPooled"})
"""What tests of sealed stores call those that they run on: parameters, or classes of the conformance suite."""
PLACES = {"tests/store/sealed/": SEALED, "tests/store/": frozenset[str](), "tests/": DATABASES}
"""The names of stores that make twins, by where a test stands: the first place counts."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each pair of twins the one whose turn it is not; what has no twin stays."""
    stores: dict[str, set[str]] = {}
    for item in items:
        name, store = _apart(item)
        stores.setdefault(name, set()).add(store)
    kept, left_out = [], []
    for item in items:
        name, store = _apart(item)
        (kept if store == _turn(name, stores[name]) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


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


def _turn(name: str, stores: set[str]) -> str:
    """The one of these stores whose turn it is."""
    return sorted(stores, reverse=True)[blake2b(name.encode(), digest_size=1).digest()[0] % len(stores)]
