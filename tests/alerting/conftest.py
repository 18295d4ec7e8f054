"""Engines on each kind of store whose clock a test puts ahead, a shop, and real servers that alerts are sent to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from perdure import limits
from perdure.clock import Computer, microseconds
from perdure.engine import Engine
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore
from tests.alerting import shop
from tests.alerting.smtp_server import SmtpServer
from tests.notices.server import Server
from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]


class LaterStore(FaultyStore):
    """A real store; who asks it for the time is told one that is ``ahead`` by so many seconds."""

    def __init__(self, url: str) -> None:
        super().__init__(store_for(url, Computer()))
        self.ahead = 0.0

    async def now(self) -> int:
        """The time of the store behind, and so much more."""
        return await super().now() + microseconds(self.ahead)


Watching = Callable[[], Awaitable[tuple[Engine, LaterStore]]]


@pytest.fixture
async def watching(store_url: str) -> AsyncIterator[Watching]:
    """Opens clients that evaluate rules; what changed before is settled for them."""
    engines: list[Engine] = []

    async def open() -> tuple[Engine, LaterStore]:
        store = LaterStore(store_url)
        store.ahead = 10.0
        engine = Engine(store_url, store=store, migrate=True)
        await engine.__aenter__()
        engines.append(engine)
        return engine, store

    yield open
    for engine in engines:
        await engine.close(0)


@pytest.fixture(autouse=True)
def _all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """No order fails, and a look that takes long on a busy machine puts off no other."""
    shop.unwell.clear()
    monkeypatch.setattr(limits, "ALERT_PAUSE_SECONDS", 0.0)


@pytest.fixture
def server() -> Iterator[Server]:
    """An HTTP server on loopback, in a thread."""
    with Server() as server:
        yield server


@pytest.fixture
async def smtp(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> AsyncIterator[SmtpServer]:
    """A mail server on loopback, which the environment names."""
    async with SmtpServer(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        monkeypatch.setenv("PERDURE_SMTP", server.url)
        monkeypatch.setenv("PERDURE_SMTP_PASSWORD", server.password)
        yield server
