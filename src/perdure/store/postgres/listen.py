"""A worker's presence on PostgreSQL: one connection that listens for hints and holds the locks that prove life.

While its session stands, the advisory locks of the incarnations enlisted here are taken; the system frees them when
this OS process dies. It exists on direct connections only: behind a transaction pooler there is no session to hold.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import asyncpg

from perdure.clock import Computer
from perdure.errors import StoreError
from perdure.store.notifications import Listener, Listeners, Notification, StopListening, of_channel
from perdure.store.postgres.backoff import Backoff
from perdure.store.postgres.connection import connect, ended
from perdure.store.postgres.error import translated
from perdure.store.postgres.url import Address


def worker_lock(worker: bytes) -> int:
    """The advisory lock of an incarnation: the last 8 bytes of its id, which are random."""
    return int.from_bytes(worker[8:], "big", signed=True)


class ListenConnection:
    """Keeps its connection alive by itself from :meth:`open` to :meth:`close`.

    ``standing_since`` is the monotonic time since which the workers' sessions are known to be alive. At the first
    connection it is the begin of the oldest presence session: a restart or a crash would have ended that session, and
    a standby has none. Later it is the time at which our own session came back. It is infinity while our session is
    lost (then no time is long enough after it), and None before the opening.
    """

    def __init__(self, address: Address, machine: Computer, queries: Mapping[str, str]) -> None:
        self.standing_since: float | None = None
        self._address = address
        self._machine = machine
        self._queries = queries
        self._held: set[int] = set()
        self._listeners = Listeners()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._turn = asyncio.Lock()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and listen; raises StoreError if that fails the first time."""
        try:
            self.standing_since = await self._oldest(await self._establish())
        except Exception as error:
            raise translated(error, self._address.shown) from error
        self._task = asyncio.create_task(self._keep(), name="perdure presence")

    async def close(self) -> None:
        """Stop listening and free all locks."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        connection, self._connection = self._connection, None
        self._held.clear()
        self.standing_since = None
        if connection is not None:
            connection.remove_termination_listener(self._ended)
            await ended(connection)

    def watch(self, listener: Listener) -> StopListening:
        """Call ``listener`` with notifications as they arrive; the answer stops it."""
        return self._listeners.add(listener)

    async def hold(self, worker: bytes) -> bool:
        """Take the lock of an incarnation and keep it across reconnects; false if that is impossible now."""
        lock = worker_lock(worker)
        async with self._turn:
            if lock in self._held:
                return True
            if not await self._asked("hold_lock", lock):
                return False
            self._held.add(lock)
            return True

    async def free(self, worker: bytes) -> None:
        """Let go of an incarnation's lock, if it is held here."""
        lock = worker_lock(worker)
        async with self._turn:
            if lock in self._held:
                self._held.discard(lock)
                await self._asked("free_lock", lock)

    async def _asked(self, query: str, lock: int) -> bool:
        connection = self._connection
        if connection is None or connection.is_closed():
            return False
        try:
            answer: bool = await connection.fetchval(self._queries[query], lock)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            connection.terminate()
            return False
        return answer

    async def _keep(self) -> None:
        backoff = Backoff(self._machine)
        while True:
            await self._lost.wait()
            try:
                await self._establish()
            except Exception:  # whatever the driver raises: this connection must always come back
                self._lost.set()
                await asyncio.sleep(backoff.failed())
                continue
            backoff.reset()
            # The notifications sent meanwhile were missed.
            self._listeners.notify(Notification(some_due=True, some_done=True, some_published=True))

    async def _oldest(self, connection: asyncpg.Connection[asyncpg.Record]) -> float:
        """When the oldest presence session on this server began, in our monotonic time; it may be our own."""
        seconds: float = await connection.fetchval(self._queries["oldest_presence"])
        return self._machine.monotonic() - seconds

    async def _establish(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await connect(self._address, "presence")
        self._lost.clear()
        connection.add_termination_listener(self._ended)
        try:
            for channel in ("due", "done", "told", "published"):
                await connection.add_listener(f"{self._address.schema}_{channel}", self._heard)
            async with self._turn:
                for lock in self._held:
                    if not await connection.fetchval(self._queries["hold_lock"], lock):
                        # The server still keeps the lost session: connect again until it has released the lock.
                        raise StoreError("the session that was lost still holds the lock; Perdure tries again")
                self._connection = connection
        except BaseException:
            connection.terminate()
            raise
        self.standing_since = self._machine.monotonic()
        return connection

    def _ended(self, connection: Any) -> None:
        self.standing_since = math.inf
        self._lost.set()

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        self._listeners.notify(of_channel(channel.rpartition("_")[2], str(payload)))
