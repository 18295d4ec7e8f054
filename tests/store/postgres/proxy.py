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
        self._lines: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for line in self._lines:
            line.cancel()
        if self._lines:
            await asyncio.wait(self._lines)

    @property
    def url(self) -> str:
        """The address of the database by way of this line."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{user}@127.0.0.1:{port}"))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)
        back, forth = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        fault: list[Fault] = []
        answers = asyncio.create_task(_answers(back, writer, fault))
        try:
            await self._requests(reader, forth, fault)
            if fault != [Fault.CUT_BEFORE]:
                forth.close()
                await answers
        finally:
            answers.cancel()
            writer.transport.abort()
            forth.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter, fault: list[Fault]) -> None:
        while request := await _read(reader):
            if self.fault is not Fault.NONE and self.mark in request:
                fault.append(self.fault)
                self.fault = Fault.NONE
                if fault == [Fault.CUT_BEFORE]:
                    return
            forth.write(request)


async def _answers(back: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: list[Fault]) -> None:
    while answer := await _read(back):
        if fault == [Fault.CUT_AFTER]:
            break
        if not fault:
            writer.write(answer)
    if fault != [Fault.SILENT]:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 20)
    except OSError:
        return b""
