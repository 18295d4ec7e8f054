"""A small HTTP server for metrics and health, on the event loop of a worker: if that stands still, so does the server.

``/metrics`` is for Prometheus, ``/health`` for liveness and ``/ready`` for readiness. It answers GET and HEAD, which
change nothing, one request a connection, without a framework: a worker serves nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from perdure.errors import PerdureError
from perdure.futures import looked_up
from perdure.monitoring.access import Access

REQUEST_BYTES = 8 * 1024
REQUEST_SECONDS = 5.0
CONNECTIONS = 32
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
PROBES = ("/health", "/ready")
"""What a server with a token tells anybody, by status alone: a probe of Kubernetes has no secret to send."""


class Page(NamedTuple):
    """What is answered: the status, the type and the body."""

    status: int
    type: str
    body: bytes


ServedPages = dict[str, Callable[[], Awaitable[Page]]]


def text(status: int, body: str) -> Page:
    """A page of plain text."""
    return Page(status, "text/plain; charset=utf-8", f"{body}\n".encode())


class MonitoringServer:
    """Serves the pages by their paths to those whom ``access`` admits."""

    def __init__(self, pages: ServedPages, access: Access) -> None:
        self._pages = pages
        self._access = access
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises PerdureError if it cannot."""
        try:
            # Steps may run already, and hang in the threads of the event loop; no host means every address.
            addresses = await looked_up(host, port) if host else None
            self._server = await asyncio.start_server(self._serve, addresses, port, limit=REQUEST_BYTES)
        except OSError as error:
            raise PerdureError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}. Give --metrics another port"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and cut off what is under way."""
        if self._server is not None:
            self._server.close()
            for task in list(self._serving):
                task.cancel()
            if self._serving:
                await asyncio.wait(list(self._serving), timeout=1.0)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) <= CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await self._answer(reader, writer)
                    writer.close()
                    await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller has gone, is too slow, or sends what is no request
        finally:
            writer.transport.abort()  # what the caller has not read by now it never gets
            self._serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request, *fields = head.split(b"\r\n")
        words = request.split(b" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(b":") for one in fields)}
        page = await self._page(words, admitted=self._access.admits(headers))
        lines = [
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}",
            f"Content-Type: {page.type}",
            f"Content-Length: {len(page.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if page.status == 401:
            lines.append("WWW-Authenticate: Bearer")
        writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if words[0] == b"HEAD" else page.body))
        await writer.drain()

    async def _page(self, words: list[bytes], *, admitted: bool) -> Page:
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return text(400, "this is no request")
        path = words[1].split(b"?", 1)[0].decode("ascii", "replace")
        if not admitted and not self._access.by_token:
            return text(403, "ask by the address of this machine, such as 127.0.0.1")
        if not admitted and path not in PROBES:
            return text(401, "send the token: Authorization: Bearer …")
        if words[0] not in (b"GET", b"HEAD"):
            return text(405, "only GET and HEAD")
        if path not in self._pages:
            return text(404, f"there are {', '.join(sorted(self._pages))}")
        page = await self._pages[path]()
        return page if admitted else text(page.status, _REASONS[page.status])
