"""Engines on each kind of store, as the tests of the runtime open them, and a real HTTP server that takes notices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notices.server import Server
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on loopback, in a thread."""
    with Server() as server:
        yield server
