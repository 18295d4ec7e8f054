"""Each test that can run on either database runs on one of the two: ``pytest -p tests.in_turn``, as `make test` does.

Which one follows from the test's name, so that it is always the same, and half of each file's tests stand on each. What
the two promise alike is proven by tests/store, whose tests run on every store; `make test-all` runs all on both.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

DATABASES = "sqlite", "postgres"
ON_EVERY_STORE = "tests/store/"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of each pair of twins the one whose turn it is not; what has no twin stays."""
    databases: dict[str, set[str]] = {}
    for item in items:
        name, database = _apart(item)
        databases.setdefault(name, set()).add(database)
    kept, left_out = [], []
    for item in items:
        name, database = _apart(item)
        here = len(databases[name]) == 1 or database == _turn(name)
        (kept if here else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _apart(item: pytest.Item) -> tuple[str, str]:
    """A test's name without its database, and that database; a test of stores is always apart from its twin."""
    given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    found = [value for value in given.values() if value in DATABASES]
    if len(found) != 1 or item.nodeid.startswith(ON_EVERY_STORE):
        return item.nodeid, ""
    place, _, words = item.nodeid.partition("[")
    others = words.rstrip("]").split("-")
    others.remove(found[0])
    return f"{place}[{'-'.join(others)}]", found[0]


def _turn(name: str) -> str:
    return DATABASES[blake2b(name.encode(), digest_size=1).digest()[0] % 2]
