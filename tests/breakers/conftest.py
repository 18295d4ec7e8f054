"""Engines on each kind of store, as the tests of the runtime open them, and a bank that is down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.breakers.bank import calls, trouble
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _down() -> Iterator[None]:
    """The bank does not answer."""
    calls.clear()
    trouble[:] = [ConnectionError("secret")]
    yield
    trouble.clear()
