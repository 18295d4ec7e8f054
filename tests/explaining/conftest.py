"""Engines on each kind of store, as the tests of the runtime open them, and a fresh shop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.explaining import shop
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _opened_anew() -> Iterator[None]:
    """Every gate is shut."""
    shop.gates.clear()
    yield
    for gate in shop.gates.values():
        gate.set()
