"""The server of metrics and health: a caller that is slow keeps nothing of it."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.monitoring import http
from perdure.monitoring.access import Access
from perdure.monitoring.http import MonitoringServer, Page
from tests.runtime.conftest import LIMIT, until


async def test_a_caller_that_does_not_read_is_cut_off_after_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.2)
    asked: list[str] = []

    async def page() -> Page:
        asked.append("page")
        return http.text(200, "x" * 16_000_000)

    server = MonitoringServer({"/metrics": page}, Access("127.0.0.1", ""))
    await server.open("127.0.0.1", 0)
    before = asyncio.all_tasks()
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        caller.connect(("127.0.0.1", server.port))
        caller.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(lambda: asked)
        await until(lambda: asyncio.all_tasks() == before)
    await server.close()


async def test_a_caller_that_reads_gets_a_whole_large_page() -> None:
    async def page() -> Page:
        return http.text(200, "x" * 4_000_000)

    server = MonitoringServer({"/metrics": page}, Access("127.0.0.1", ""))
    await server.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 OK") and len(answer.partition(b"\r\n\r\n")[2]) == 4_000_001
    writer.close()
    await writer.wait_closed()
    await server.close()


async def test_a_server_is_opened_by_the_name_of_its_host_while_a_call_hangs_in_the_threads_of_the_event_loop() -> None:
    door = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    hung = asyncio.create_task(asyncio.to_thread(door.wait))
    await asyncio.sleep(0)  # it has the only thread now
    server = MonitoringServer({}, Access("localhost", ""))
    try:
        async with asyncio.timeout(LIMIT):
            await server.open("localhost", 0)
        assert server.port and not hung.done()
    finally:
        door.set()
        await hung
        await server.close()
