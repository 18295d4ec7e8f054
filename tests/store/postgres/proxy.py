"""A TCP line to a PostgreSQL server that can be cut, or made silent, at the worst moment."""

from __future__ import annotations

import asyncio
from enum import Enum
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit


class Fault(Enum):
    """What happens to the next request that carries ``Proxy.mark``."""

    NONE = "it passes"
    CUT_BEFORE = "the line is cut before the server has it"
    CUT_AFTER = "the server has it, and the line is cut instead of its answer"
    SILENT = "the server has it, and its answer never arrives"


class Proxy:
    """Listens on a loopback port and passes everything on, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.fault = Fault.NONE
        self.mark = b"\0"
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def url(self) -> str:
        """The address of the database by way of this line."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{user}@127.0.0.1:{port}"))

    def cut(self) -> None:
        """Cut all connections that stand."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        back, forth = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers += [writer, forth]
        silent = asyncio.Event()
        for work in (self._requests(reader, writer, forth, silent), self._answers(back, writer, forth, silent)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forth: asyncio.StreamWriter, hush: asyncio.Event
    ) -> None:
        while request := await _read(reader):
            fault = self.fault if self.mark in request else Fault.NONE
            if fault is not Fault.NONE:
                self.fault = Fault.NONE
                hush.set()
            if fault is Fault.CUT_BEFORE:
                forth.transport.abort()
                writer.transport.abort()
                return
            forth.write(request)
            if fault is Fault.CUT_AFTER:
                # The server's answer is awaited by _answers, which then cuts the line.
                self._cut_on_answer = forth
        forth.close()

    async def _answers(
        self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, forth: asyncio.StreamWriter, hush: asyncio.Event
    ) -> None:
        while answer := await _read(back):
            if not hush.is_set():
                writer.write(answer)
            elif getattr(self, "_cut_on_answer", None) is forth:
                writer.transport.abort()
                return
        if not hush.is_set():
            writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 20)
    except OSError:
        return b""
