"""What the tests of the portal may ask for: a blocking engine that works, on each store in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure import BlockingEngine, WorkerOptions
from perdure.authoring.registry import Registry
from tests.portal import shop


@pytest.fixture
def postgres_url(cleared_url: str) -> str:
    """The one database that is migrated, emptied: these tests look at the portal, not at how a schema is made."""
    return cleared_url


@pytest.fixture
def engine(store_url: str) -> Iterator[BlockingEngine]:
    """An engine that works on the shop's processes, whatever other tests have defined under the same names."""
    with BlockingEngine(
        store_url, work=True, registry=Registry(shop), options=WorkerOptions(stop_seconds=0.2)
    ) as opened:
        yield opened
