"""One connection to PostgreSQL that comes back by itself, used by one caller at a time.

A write is never cancelled and never awaited under a timeout: a caller that stops waiting leaves the write to end by
itself. A connection that stays silent is aborted (no cancel request), which leaves the outcome unknown (rules 5 and 7).
A read is another matter: one that nobody awaits is not sent, and all that wait hear that there is no connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from perdure.clock import Computer
from perdure.errors import StoreError, StoreTooOld, StoreUnavailable
from perdure.limits import CONNECT_SECONDS, SILENT_CONNECTION_SECONDS
from perdure.store.postgres.backoff import Backoff
from perdure.store.postgres.error import reconnects, retries, stale, translated
from perdure.store.postgres.uncancelled import Uncancelled
from perdure.store.postgres.url import Address, reached
from perdure.store.query import load

CLASH_RETRIES = 20
CLASH_SECONDS = 0.01

# Found within 10 s: 4 s of silence, then three probes 2 s apart; unanswered data is given up after 8 s.
_KEEPALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 8_000}
_SERVER_KEEPALIVE = {
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "8000",
}
_FIXED = {"search_path": "pg_catalog, pg_temp"}
"""It counts whatever the URL or the login sets: no name in our SQL, or in the driver's, finds what others created."""


async def connect(address: Address, purpose: str) -> asyncpg.Connection[asyncpg.Record]:
    """A fresh connection with our codec, search path and keepalives; raises what the driver raises."""
    connection = await plain(address, purpose, _FIXED)
    try:
        async with on_a_fixed_path(connection, address):
            # Ids are 16 raw bytes here, and uuid there.
            await connection.set_type_codec("uuid", schema="pg_catalog", encoder=_whole, decoder=bytes, format="binary")
    except BaseException:
        connection.terminate()
        raise
    return connection


@asynccontextmanager
async def on_a_fixed_path(connection: asyncpg.Connection[asyncpg.Record], address: Address) -> AsyncIterator[None]:
    """Enclose what makes the driver send queries of its own: behind a pooler the session's search path is not ours."""
    if not address.pooled:
        yield
        return
    async with connection.transaction():
        await connection.execute(load("postgres")["fixed_path"])
        yield


async def plain(
    address: Address, purpose: str, own: Mapping[str, str] = MappingProxyType({}), **settings: Any
) -> asyncpg.Connection[asyncpg.Record]:
    """A fresh connection with our keepalives and nothing else but these settings; raises what the driver raises."""
    direct: dict[str, Any] = {"server_settings": {"application_name": f"perdure {purpose}", **_SERVER_KEEPALIVE, **own}}
    pooled: dict[str, Any] = {"statement_cache_size": 0}
    connection = await reached(
        address,
        timeout=CONNECT_SECONDS,
        max_cached_statement_lifetime=0,
        **(pooled if address.pooled else direct),
        **settings,
    )
    try:
        _keep_alive(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _whole(id: bytes) -> bytes:
    if len(id) != 16:
        raise ValueError(f"an id has 16 bytes, this one {len(id)}")
    return id


def _keep_alive(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Let the system find a dead peer; set on a duplicate, since a loop's own socket may not allow it."""
    transport: asyncio.Transport = connection._transport
    known = transport.get_extra_info("socket")
    if known is None or known.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with socket.socket(fileno=os.dup(known.fileno())) as duplicate:
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                duplicate.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Request(NamedTuple):
    """A statement that waits for its turn, and the future that gets its rows; ``check`` may refuse it last.

    A ``write`` is sent whatever becomes of its caller.
    """

    sql: str
    given: tuple[Any, ...]
    check: Callable[[], None] | None
    answer: asyncio.Future[list[asyncpg.Record]]
    name: str
    write: bool

    @property
    def abandoned(self) -> bool:
        """Whether it is a read that nobody awaits any more."""
        return not self.write and self.answer.done()


Met: TypeAlias = Callable[["asyncpg.Connection[asyncpg.Record]"], Awaitable[None]]
"""Looks at a fresh connection, before anything else is sent on it."""


class PostgresConnection:
    """A connection for one purpose, opened when it is first needed and again after it was lost.

    Where it is for ``reads``, all that is asked for is a read, unless it is said to be a write.
    """

    def __init__(
        self,
        address: Address,
        machine: Computer,
        queries: Mapping[str, str],
        purpose: str,
        met: Met | None = None,
        *,
        reads: bool = False,
    ) -> None:
        self.patience = SILENT_CONNECTION_SECONDS
        self.met = met
        self._address = address
        self._machine = machine
        self._queries = queries
        self._purpose = purpose
        self._reads = reads
        self._backoff = Backoff(machine)
        self._not_before = 0.0
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._requests: deque[Request] = deque()
        self._under_way: Request | None = None
        self._connecting: asyncio.Future[asyncpg.Connection[asyncpg.Record]] | None = None
        self._busy = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._asked_at: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    async def rows(
        self, name: str, *given: Any, check: Callable[[], None] | None = None, write: bool = False
    ) -> list[asyncpg.Record]:
        """The rows that a named query answers. After StoreUnavailable the outcome of a write is unknown.

        ``check`` is called just before the statement is sent, also on a new connection, and raises to prevent that.
        """
        return await self.fetch(self._queries[name], *given, check=check, name=name, write=write)

    async def fetch(
        self, sql: str, *given: Any, check: Callable[[], None] | None = None, name: str = "", write: bool = False
    ) -> list[asyncpg.Record]:
        """The rows that a statement answers: see :meth:`rows`."""
        answer = asyncio.get_running_loop().create_future()
        request = Request(sql, given, check, answer, name, write or not self._reads)
        self._requests.append(request)
        if not self._busy:
            self._busy = True
            self._quiet.clear()
            Uncancelled(self._serve())
        # If the caller is cancelled here the statement goes on: a COMMIT is never cancelled.
        return await request.answer

    async def row(self, name: str, *given: Any, write: bool = False) -> asyncpg.Record:
        """The one row that a named query answers."""
        return (await self.rows(name, *given, write=write))[0]

    def ready(self) -> None:
        """Connect when the first statement comes."""
        self._closed = False

    async def open(self, connection: asyncpg.Connection[asyncpg.Record] | None = None) -> None:
        """Connect now, so that a wrong address shows at once, or use the given connection; raises StoreError."""
        self._closed = False
        try:
            await self._connected(connection)
        except Exception as error:
            raise translated(error, self._address.shown) from error

    async def close(self) -> None:
        """Close the connection after the statements under way, or by force if these do not end.

        A connection that is for reads is not waited for while it is made, nor while a read is under way that nobody
        awaits.
        """
        self._closed = True
        if self._connecting is not None and self._reads:
            self._connecting.cancel()
        elif self._under_way is not None and self._under_way.abandoned and self._connection is not None:
            self._connection.terminate()
        waiting = asyncio.ensure_future(self._quiet.wait())
        await asyncio.wait([waiting], timeout=self.patience)
        waiting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await ended(connection)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _serve(self) -> None:
        """Send the waiting requests, one after the other, until none is left."""
        while self._requests:
            self._under_way = request = self._requests.popleft()
            if request.abandoned:
                continue
            answer = request.answer
            try:
                found = await self._tried(request.sql, request.given, request.check)
            except Exception as error:
                self._refuse(request, error)
            except asyncio.CancelledError:
                answer.cancel()  # the event loop ends
            else:
                if not answer.done():
                    answer.set_result(found)
        self._under_way = None
        self._busy = False
        self._quiet.set()

    def _refuse(self, request: Request, error: Exception) -> None:
        if not request.answer.done():
            request.answer.set_exception(self._meant(error, request.name))

    def _meant(self, error: Exception, query: str) -> StoreError:
        """The store's own error; tables that were there at the opening and are missing now may come back."""
        meant = translated(error, self._address.shown, query)
        if isinstance(meant, StoreTooOld) and self.met is not None:
            return StoreUnavailable(f"{meant}; the tables were there before: Perdure tries again until they are back")
        return meant

    async def _tried(self, sql: str, given: tuple[Any, ...], check: Callable[[], None] | None) -> list[asyncpg.Record]:
        """The answer to a statement, sent again while it clashes with other transactions."""
        left = CLASH_RETRIES
        fresh = False
        while True:
            connection: Any = self._connection
            if connection is None or connection.is_closed():
                connection = await self._made()
            if check is not None:
                check()
            self._asked()
            try:
                found: list[asyncpg.Record] = await connection.fetch(sql, *given)
                return found
            except asyncpg.PostgresError as error:
                left -= 1
                if reconnects(error):
                    connection.terminate()
                elif stale(error) and not fresh:
                    connection.terminate()
                    fresh = True
                    continue
                if not retries(error) or not left:
                    raise
            except asyncpg.InternalClientError:
                connection.terminate()  # the server closed it between two statements, and the driver has not noticed
                raise
            finally:
                self._asked_at = None
            await asyncio.sleep(CLASH_SECONDS * (0.5 + self._machine.random()))

    async def _made(self) -> asyncpg.Connection[asyncpg.Record]:
        """A new connection. If there is none, the reads that wait are answered now: each would try the same again."""
        # In a task, since the driver connects under timeouts, which need one.
        self._connecting = asyncio.ensure_future(self._connected())
        try:
            return await self._connecting
        except asyncio.CancelledError:
            if not self._closed:
                raise
            error = _closed()
            self._refuse_reads(error)
            raise error from None
        except Exception as error:
            self._refuse_reads(error)
            raise
        finally:
            self._connecting = None

    def _refuse_reads(self, error: Exception) -> None:
        """Answer the reads that wait."""
        waiting, self._requests = self._requests, deque()
        for request in waiting:
            if request.write:
                self._requests.append(request)
            else:
                self._refuse(request, error)

    def _asked(self) -> None:
        """Note that the server owes an answer, and begin to watch for its silence."""
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if self._watch is None:
            self._watch = loop.call_later(self.patience, self._look)

    def _look(self) -> None:
        """Abort a connection that has been silent for too long; look again as long as there is an answer to come."""
        self._watch = None
        if self._asked_at is None or self._connection is None:
            return
        loop = asyncio.get_running_loop()
        left = self._asked_at + self.patience - loop.time()
        if left > 0:
            self._watch = loop.call_later(left, self._look)
        else:
            self._connection.terminate()

    async def _connected(
        self, connection: asyncpg.Connection[asyncpg.Record] | None = None
    ) -> asyncpg.Connection[asyncpg.Record]:
        if self._closed:
            raise _closed()
        await asyncio.sleep(max(0.0, self._not_before - self._machine.monotonic()))
        try:
            connection = connection or await connect(self._address, self._purpose)
            if self._address.pooled:
                await self._typed(connection)
            if self.met is not None:
                await self._introduced(connection, self.met)
        except Exception:
            self._not_before = self._machine.monotonic() + self._backoff.failed()
            raise
        self._backoff.reset()
        self._connection = connection
        return connection

    async def _typed(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Let the driver look up our types now, on a fixed path: the login's search path cannot mislead it."""
        async with self._guarded(connection), on_a_fixed_path(connection, self._address):
            await connection.fetchrow(self._queries["types"])

    async def _introduced(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        met: Callable[[asyncpg.Connection[asyncpg.Record]], Awaitable[None]],
    ) -> None:
        """Let ``met`` look at a new connection before it is used."""
        async with self._guarded(connection):
            await met(connection)

    @asynccontextmanager
    async def _guarded(self, connection: asyncpg.Connection[asyncpg.Record]) -> AsyncIterator[None]:
        """Abort a new connection that stays silent, or that fails."""
        silent = asyncio.get_running_loop().call_later(self.patience, connection.terminate)
        try:
            yield
        except BaseException:
            connection.terminate()
            raise
        finally:
            silent.cancel()


def _closed() -> StoreError:
    return StoreError("the store is closed; open it before using it")


async def ended(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Close a connection, or abort it if the server does not answer."""
    try:
        await connection.close(timeout=2.0)
    except Exception:
        connection.terminate()
