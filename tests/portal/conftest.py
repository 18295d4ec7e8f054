"""What the tests of the portal may ask for: a blocking engine that works, on each store in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure import BlockingEngine, Pace


@pytest.fixture
def engine(store_url: str) -> Iterator[BlockingEngine]:
    """An engine that works on the processes it starts."""
    with BlockingEngine(store_url, work=True, pace=Pace(stop_seconds=0.2)) as opened:
        yield opened
