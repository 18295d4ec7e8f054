"""Engines on each kind of store, as the tests of the runtime open them, with nothing done yet."""

from __future__ import annotations

import pytest

from tests.rehearsal import code
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    code.done.clear()
