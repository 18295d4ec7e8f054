"""Engines on each kind of store, a real HTTP server that takes batches, and a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notices.server import Server
from tests.runtime.conftest import opened, postgres_url
from tests.streams.redis_server import RedisServer, program

__all__ = ["opened", "postgres_url"]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on loopback, in a thread."""
    with Server() as server:
        yield server


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A Redis of our own on a free port."""
    if program() is None:
        pytest.skip("Redis is not installed; on Debian and Ubuntu: apt-get install redis-server")
    with RedisServer() as server:
        yield server
