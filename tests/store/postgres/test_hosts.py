"""Several hosts in one URL: the one that may be written to is found, whatever the others do."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.clock import Computer
from perdure.errors import StoreUnavailable
from perdure.store.postgres.store import PostgresStore
from perdure.testing.postgres import Server, free_port


@pytest.fixture
def dark() -> Iterator[int]:
    """The port of a host that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


async def test_a_host_gone_dark_keeps_nobody_waiting_for_the_one_that_answers(shared_server: Server, dark: int) -> None:
    database = shared_server.fresh_database().rpartition("/")[2]
    hosts = f"127.0.0.1:{dark},127.0.0.1:{shared_server.port}"
    machine = Computer()
    store = PostgresStore(f"postgresql://perdure@{hosts}/{database}", machine=machine)
    begun = machine.monotonic()
    await store.open()
    try:
        assert await store.now() > 0
        assert machine.monotonic() - begun < 8.0, "the dark one was waited for"
    finally:
        await store.close()


async def test_while_no_host_may_be_written_to_the_store_is_unavailable_and_says_so(shared_server: Server) -> None:
    url = shared_server.fresh_database()
    database = url.rpartition("/")[2]
    shared_server.execute("postgres", f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{shared_server.port}"
    with pytest.raises(StoreUnavailable, match="may be written to"):
        await asyncio.wait_for(PostgresStore(f"postgresql://perdure@{hosts}/{database}").open(), 30)


async def test_a_host_is_looked_up_while_a_call_hangs_in_the_threads_of_the_event_loop(shared_server: Server) -> None:
    url = shared_server.fresh_database().replace("127.0.0.1", "localhost")
    begun, door = threading.Event(), threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    hung = asyncio.gather(asyncio.to_thread(begun.set), asyncio.to_thread(door.wait))
    store = PostgresStore(url)
    try:
        async with asyncio.timeout(30):
            await store.open()
            assert await store.now() > 0
        assert begun.is_set() and not hung.done()
    finally:
        door.set()
        await hung
        await store.close()


async def test_of_a_host_that_does_not_answer_every_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.1", "127.0.0.2")]

    def two_addresses(*_: object, flags: int = 0, **__: object) -> list[object]:
        if flags:
            raise socket.gaierror("it is a name")
        return [*places]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    with pytest.raises(StoreUnavailable, match=rf"'127.0.0.1', {port}.*'127.0.0.2', {port}"):
        await PostgresStore(f"postgresql://perdure@db.example:{port}/shop").open()
