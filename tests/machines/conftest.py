"""Engines on each kind of store, as the tests of the runtime open them, and a ledger of what methods have done."""

from __future__ import annotations

import pytest

from tests.machines import account
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    account.done.clear()
    account.gates.clear()
    account.rates.clear()
