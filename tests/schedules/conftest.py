"""Engines on each kind of store, as the tests of the runtime open them, and a ledger of what was started."""

from __future__ import annotations

import pytest

from tests.runtime.conftest import opened, postgres_url
from tests.schedules import reports

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    reports.done.clear()
    reports.gates.clear()
