"""Engines on each kind of store, as the tests of the runtime open them, and a bank that can be down."""

from __future__ import annotations

import pytest

from tests.operations import bank
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _a_new_bank() -> None:
    bank.down.set()
    bank.charged.clear()
    bank.never.clear()
