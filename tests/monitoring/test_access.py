"""Who may ask the monitoring server: every page by every method, with the token, with a wrong one and without."""

from __future__ import annotations

import asyncio
import hmac
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from perdure import Engine
from perdure.errors import DefinitionError
from perdure.monitoring.access import Access
from perdure.monitoring.http import MonitoringServer
from perdure.monitoring.pages import pages
from tests.monitoring.shop import order
from tests.runtime.conftest import until

TOKEN = "0123456789abcdef0123456789abcdef"
PAGES = ("/metrics", "/health", "/ready")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get")


async def ask(port: int, path: str, *fields: str, method: str = "GET") -> tuple[int, str]:
    """The status and the body of what is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""]).encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split(" ")[1]), body


@pytest.fixture
async def file(tmp_path: Path) -> str:
    """A store in which a process waits, and nobody works."""
    path = str(tmp_path / "shop.db")
    async with Engine(f"sqlite:///{path}", migrate=True) as engine:
        await engine.start(order, "cup")
    return path


@pytest.fixture
async def port(file: str) -> AsyncIterator[int]:
    """Of a server with a token, for the pages of a worker that is not there yet."""
    server = MonitoringServer(pages(lambda: None, CollectorRegistry()), Access("0.0.0.0", TOKEN))
    await server.open("127.0.0.1", 0)
    yield server.port
    await server.close()


async def test_every_page_asks_for_the_token_and_tells_others_no_more_than_a_probe_needs(port: int) -> None:
    right = f"authorization:  Bearer {TOKEN}"
    assert [(await ask(port, path, right))[0] for path in PAGES] == [200, 200, 503]
    assert "it does not work" in (await ask(port, "/ready", right))[1]
    sent = ("{}", "bearer {}", "Bearer {}0", "Bearer 0{}", "Bearer", "Bearer ", "Basic {}", "Bearer \u00e9")
    wrong = ["", "X-Token: 1", *(f"Authorization: {one.format(TOKEN)}" for one in sent)]
    wrong.append(f"Authorization: Bearer {TOKEN[:-1]}")
    for field in wrong:
        fields = [field] if field else []
        assert await ask(port, "/metrics", *fields) == (401, "send the token: Authorization: Bearer …\n")
        assert await ask(port, "/health", *fields) == (200, "OK\n")
        assert await ask(port, "/ready", *fields) == (503, "Service Unavailable\n")
        assert (await ask(port, "/secret", *fields))[0] == 401, "nobody learns which pages there are"
    assert (await ask(port, f"/metrics?token={TOKEN}"))[0] == 401, "addresses stand in logs"


async def test_no_page_changes_anything_by_any_method(port: int, file: str) -> None:
    def content() -> list[str]:
        with sqlite3.connect(file) as connection:
            return list(connection.iterdump())

    before = content()
    assert any("order" in line for line in before)
    for method in METHODS:
        for path in (*PAGES, "/"):
            status, _ = await ask(port, path, f"Authorization: Bearer {TOKEN}", method=method)
            assert (status == 405) == (method not in ("GET", "HEAD")), (method, path, status)
    assert content() == before


async def test_a_token_is_compared_in_a_time_that_does_not_tell_it(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(sent: bytes, expected: bytes) -> bool:
        compared.append((sent, expected))
        return compare(sent, expected)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    await ask(port, "/metrics", "Authorization: Bearer guessed")
    await until(lambda: compared)
    assert compared == [(b"Bearer guessed", f"Bearer {TOKEN}".encode())]


async def test_without_a_token_this_machine_asks_by_its_own_names_alone() -> None:
    server = MonitoringServer(pages(lambda: None, CollectorRegistry()), Access("localhost", ""))
    await server.open("127.0.0.1", 0)
    for host in ("localhost", f"LOCALHOST:{server.port}", f"127.0.0.1:{server.port}", "127.1.2.3", "[::1]:9464"):
        assert (await ask(server.port, "/metrics", f"Host: {host}"))[0] == 200, host
    for host in ("evil.example", "evil.example:9464", "127.0.0.1.evil.example", "10.0.0.7", "[2001:db8::1]", "[", ""):
        for path in PAGES:
            assert (await ask(server.port, path, f"Host: {host}"))[0] == 403, host
    assert (await ask(server.port, "/health"))[0] == 200, "no browser leaves it out"
    await server.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "worker-1", "127.0.0.1.nip.io"])
def test_what_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(DefinitionError, match="Set PERDURE_METRICS_TOKEN"):
        Access(host, "")
    assert Access(host, TOKEN).by_token


@pytest.mark.parametrize(
    "token", ["secret", "x" * 15, "0123456789abcdef\n", "0123456789abcdef ", "schlüssel-schlüssel"]
)
def test_a_token_that_is_easily_guessed_or_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(DefinitionError, match="at least 16 printable ASCII characters without spaces") as refused:
        Access("127.0.0.1", token)
    assert token not in str(refused.value)
