"""Engines on each kind of store, as the tests of the runtime open them, with nothing done yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rehearsal import code
from tests.runtime.conftest import Open, engines_on, opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    code.done.clear()
    code.broken.clear()


@pytest.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens engines on another database, a SQLite file."""
    async with engines_on(f"sqlite:///{tmp_path}/elsewhere.db") as open:
        yield open
