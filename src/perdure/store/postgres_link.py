"""One connection to PostgreSQL that comes back by itself, used by one caller at a time.

A write is never cancelled and never awaited under a timeout: whoever stops waiting leaves it to end by itself, and a
connection that stays silent is aborted (no cancel request), which leaves the outcome unknown (rules 5 and 7).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from perdure.clock import Machine
from perdure.errors import StoreError
from perdure.limits import CONNECT_SECONDS, RECONNECT_CAP_SECONDS, RECONNECT_FIRST_SECONDS, SILENT_CONNECTION_SECONDS
from perdure.store.postgres_error import reconnects, retries, translated
from perdure.store.postgres_url import Address

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


async def connect(address: Address, purpose: str) -> asyncpg.Connection[asyncpg.Record]:
    """A fresh connection with our codec and keepalives; raises what the driver raises."""
    direct: dict[str, Any] = {"server_settings": {"application_name": f"perdure {purpose}", **_SERVER_KEEPALIVE}}
    pooled: dict[str, Any] = {"statement_cache_size": 0}
    connection = await asyncpg.connect(
        address.dsn,
        timeout=CONNECT_SECONDS,
        max_cached_statement_lifetime=0,
        **(pooled if address.pooled else direct),
    )
    try:
        _keep_alive(connection)
        # Ids are 16 raw bytes here, and uuid there.
        await connection.set_type_codec("uuid", schema="pg_catalog", encoder=_whole, decoder=bytes, format="binary")
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


class Backoff:
    """How long to wait before the next attempt to connect: doubled each time, with jitter, up to a cap."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._failed = 0

    def reset(self) -> None:
        """The attempt went well."""
        self._failed = 0

    def failed(self) -> float:
        """The attempt failed; the answer is how many seconds to wait."""
        wait = min(RECONNECT_FIRST_SECONDS * 2.0**self._failed, RECONNECT_CAP_SECONDS)
        self._failed = min(self._failed + 1, 30)
        return wait * (0.5 + self._machine.random())


class Link:
    """A connection for one purpose, opened when it is first needed and again after it was lost."""

    def __init__(self, address: Address, machine: Machine, queries: Mapping[str, str], purpose: str) -> None:
        self.patience = SILENT_CONNECTION_SECONDS
        self._address = address
        self._machine = machine
        self._queries = queries
        self._purpose = purpose
        self._backoff = Backoff(machine)
        self._not_before = 0.0
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def rows(self, name: str, *given: Any) -> Sequence[asyncpg.Record]:
        """The rows that a named query answers. StoreUnavailable: what became of a write is unknown."""
        sending = asyncio.ensure_future(self._send(self._queries[name], given))
        self._under_way.add(sending)
        sending.add_done_callback(self._ended)
        # If the caller is cancelled here the statement goes on: a COMMIT is never cancelled.
        return await asyncio.shield(sending)

    async def row(self, name: str, *given: Any) -> asyncpg.Record:
        """The one row that a named query answers."""
        return (await self.rows(name, *given))[0]

    async def open(self) -> None:
        """Connect now, so that a wrong address is told at once; raises StoreError."""
        self._closed = False
        async with self._turn:
            await self._connected()

    async def close(self) -> None:
        """Let go of the connection after what is under way, or by force if that does not end."""
        self._closed = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self.patience)
        connection, self._connection = self._connection, None
        if connection is not None:
            await ended(connection)

    def _ended(self, sending: asyncio.Future[Any]) -> None:
        self._under_way.discard(sending)
        if not sending.cancelled():
            sending.exception()  # read here, in case nobody waits for it any more

    async def _send(self, sql: str, given: tuple[Any, ...]) -> list[asyncpg.Record]:
        async with self._turn:
            for _ in range(CLASH_RETRIES):
                try:
                    return await self._sent(sql, given)
                except asyncpg.PostgresError as error:
                    if not retries(error):
                        raise translated(error, self._address.shown) from error
                    clash = error
                await asyncio.sleep(CLASH_SECONDS * (0.5 + self._machine.random()))
        raise translated(clash, self._address.shown)

    async def _sent(self, sql: str, given: tuple[Any, ...]) -> list[asyncpg.Record]:
        connection = await self._connected()
        silence = asyncio.get_running_loop().call_later(self.patience, connection.terminate)
        try:
            found: list[asyncpg.Record] = await connection.fetch(sql, *given)
            return found
        except asyncpg.PostgresError as error:
            if reconnects(error):
                connection.terminate()
            raise
        except Exception as error:
            raise translated(error, self._address.shown) from error
        finally:
            silence.cancel()

    async def _connected(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = self._connection
        if connection is not None and not connection.is_closed():
            return connection
        if self._closed:
            raise StoreError("the store is closed; open it before using it")
        await asyncio.sleep(max(0.0, self._not_before - self._machine.monotonic()))
        try:
            connection = await connect(self._address, self._purpose)
        except Exception as error:
            self._not_before = self._machine.monotonic() + self._backoff.failed()
            raise translated(error, self._address.shown) from error
        self._backoff.reset()
        self._connection = connection
        return connection


async def ended(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Say goodbye to the server, or cut the connection if it does not listen."""
    try:
        await connection.close(timeout=2.0)
    except Exception:
        connection.terminate()
