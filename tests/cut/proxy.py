"""A proxy that understands so much of PostgreSQL's protocol that it can cut a connection around a chosen statement.

Every batch of the engine is one statement and one transaction, which commits when the server reads the client's Sync.
So a cut before that message is forwarded leaves nothing, one after it leaves everything, and one in the middle of the
answer leaves what the server had got to; the engine hears the same each time: the connection is gone.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Self

from perdure.testing.postgres import free_port

READ_BYTES = 1 << 16
_DOOR = re.compile(r'FROM "?\w+"?\.(\w+)\(')


class Cut(StrEnum):
    """Where a connection is cut."""

    BEFORE = "before it was forwarded"
    AFTER = "after it was forwarded"
    WITHIN = "within the answer"


class Proxy:
    """Listens on a loopback port and hands everything on to the server, but for what ``chosen`` wants cut.

    ``chosen`` is asked at each execution of a statement, with the name of the function that it calls.
    """

    def __init__(self, server_port: int, chosen: Callable[[str], Cut | None]) -> None:
        self.port = free_port()
        self.cuts: Counter[tuple[str, Cut]] = Counter()
        self.chosen = chosen
        self._server_port = server_port
        self._wires: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=READ_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for wire in self._wires:
            wire.cancel()
        await asyncio.gather(*self._wires, return_exceptions=True)
        await self._listening.wait_closed()

    def before(self, url: str) -> str:
        """The URL of the same database by way of this proxy, unencrypted."""
        return url.replace(f":{self._server_port}/", f":{self.port}/") + "?sslmode=disable"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._wires.add(task)
        try:
            server = await asyncio.open_connection("127.0.0.1", self._server_port)
            await Wire(self, (reader, writer), server).run()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._wires.discard(task)


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """One connection of the engine and the server's end of it."""

    def __init__(self, proxy: Proxy, client: Ends, server: Ends) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._texts: dict[bytes, str] = {}
        self._within: str | None = None

    async def run(self) -> None:
        """Hand on until one side ends or the connection is cut."""
        pumps = [asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._client[1].transport.abort()
            self._server[1].close()  # what was forwarded arrives: an abort would throw it away

    async def _up(self) -> None:
        """From the engine to the server, message by message up to each Sync."""
        reader, server = self._client[0], self._server[1]
        size = await reader.readexactly(4)
        server.write(size + await reader.readexactly(int.from_bytes(size, "big") - 4))
        async for group, door in self._groups(reader):
            cut = self._proxy.chosen(door) if door else None
            if cut is not None:
                self._proxy.cuts[door, cut] += 1
            if cut is Cut.BEFORE:
                return
            if cut is Cut.WITHIN:
                self._within = door
            server.write(group)
            await server.drain()
            if cut is Cut.AFTER:
                return

    async def _groups(self, reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, str]]:
        """The engine's messages in groups that the server answers at once, with the function that each executes."""
        group, text = b"", ""
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
            kind = head[:1]
            group += head + body
            if kind == b"P":
                name, sql, _ = body.split(b"\0", 2)
                self._texts[name] = sql.decode()
            elif kind == b"B":
                text = self._texts.get(body.split(b"\0", 2)[1], "")
            elif kind in b"SHQX":  # Sync, Flush, a simple query, goodbye
                found = _DOOR.search(text) if kind == b"S" else None
                yield group, found[1] if found else ""
                group, text = b"", ""

    async def _down(self) -> None:
        """From the server to the engine; of an answer that is to be cut only the first half of what came."""
        while answer := await self._server[0].read(READ_BYTES):
            if self._within is not None:
                self._client[1].write(answer[: len(answer) // 2])
                await self._client[1].drain()
                return
            self._client[1].write(answer)
            await self._client[1].drain()
