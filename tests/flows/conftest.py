"""Engines on each kind of store, as the tests of the runtime open them, and a ledger of what flows have done."""

from __future__ import annotations

import pytest

from tests.flows import transfer
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    for ledger in (transfer.sent, transfer.done, transfer.gates, transfer.down):
        ledger.clear()
