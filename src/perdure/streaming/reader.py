"""The reader of one event stream: it reads under a lease, and moves the position once a batch was handled.

The row of the stream is written only in its next version, so of two readers that both believe to have the lease one is
refused. What it has handled by then is handled once more, by the other one.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import ref

from perdure import limits
from perdure.clock import Computer, microseconds
from perdure.errors import StreamNotFound
from perdure.kernel.stream import ERROR_CHARACTERS, MOST_FAILURES, EventStream, LogPage
from perdure.logs import logger
from perdure.store.base import Store

log = logger("stream")


class StreamReader:
    """Holds the lease of one stream, as long as it renews it; ``row`` is the stream as it was read or written last."""

    def __init__(self, store: Store, name: str, machine: Computer) -> None:
        self.name = name
        self.row: EventStream | None = None
        self.holder = ""
        self._store = store
        self._id = f"{machine.name()} {machine.new_id().hex()[-12:]}"
        self._writing = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def take(self) -> bool:
        """Take the lease if nobody else has it, and renew it from then on; raises StreamNotFound, StoreError.

        If another reader has it, ``holder`` says which.
        """
        row, now = await find(self._store, self.name), await self._store.now()
        if row.held_by_other(self._id, now):
            self.holder = row.owner
            return False
        self.row = row
        try:
            taken = await self._write(until=now + _lease())
        except BaseException:
            # If it was written all the same the lease is ours: to take it again is to renew it.
            self.row = None
            raise
        if not taken:
            return False
        if self._renewal is None:
            self._renewal = asyncio.create_task(
                _renew(ref(self), self.name), name=f"perdure lease of stream {self.name}"
            )
        return True

    @property
    def held(self) -> bool:
        """Whether the lease was ours when the row was read or written last."""
        return self.row is not None

    @property
    def position(self) -> int:
        """All up to it was handled."""
        return (self.row and self.row.position) or 0

    async def page(self) -> LogPage:
        """What stands behind the position; raises StoreError."""
        return await page_of(self._store, self.row or EventStream(self.name), self.position)

    async def moved(self, position: int) -> bool:
        """Move the position: all up to it was handled. False if the lease was lost."""
        return await self._write(position=position, until=await self._store.now() + _lease(), failures=0, error="")

    async def failed(self, error: str) -> int:
        """Note that a batch was not taken; the answer is how often in a row, 0 if the lease was lost."""
        failures = 1 if self.row is None else min(self.row.failures + 1, MOST_FAILURES)
        noted = await self._write(failures=failures, error=error[:ERROR_CHARACTERS].replace("\0", ""))
        return failures if noted else 0

    async def release(self) -> None:
        """Give the lease back, so that another reader need not wait for its end; raises StoreError."""
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        try:
            await self._write(owner="", until=0)
        finally:
            self.row = None  # if it was not written the lease ends by itself

    async def _write(self, **changes: Any) -> bool:
        """Write the next version of the row, over changes that people have made meanwhile; False if it is not ours."""
        async with self._writing:
            while self.row is not None:
                change = self.row.next(**({"owner": self._id} | changes))
                rows = await self._store.records(EventStream, [change])
                found = next((row for row in rows if row.name == self.name), None)
                if found == change:
                    self.row = found
                    return True
                if found is None or found.owner != self._id:
                    if found is not None and self.row.owner == self._id:
                        log.warning("%s was taken over by another reader, since its lease had ended", change.text())
                    self.row = None
                    return False
                # A person has changed it, or the answer to our last change was lost: go on from what there is.
                self.row = found
            return False

    async def renew(self) -> None:
        """Renew the lease, if it is ours; raises StoreError."""
        if self.row is not None:
            await self._write(until=await self._store.now() + _lease())


async def _renew(reader: ref[StreamReader], name: str) -> None:
    """Renew the lease again and again, as long as somebody has the reader.

    If we die, or the reader was left without a release, the lease ends, and another reader goes on from the position.
    """
    while True:
        await asyncio.sleep(limits.STREAM_LEASE_SECONDS / 3)
        held = reader()
        if held is None:
            return
        try:
            await held.renew()
        except Exception as error:
            log.warning("the lease of event stream %s cannot be renewed now: %s", name, error)
        del held


def _lease() -> int:
    return microseconds(limits.STREAM_LEASE_SECONDS)


async def page_of(store: Store, row: EventStream, behind: int, size: int = limits.STREAM_BYTES) -> LogPage:
    """What a stream gets behind a position; raises StoreError."""
    log = store.backend.event_log
    return await log.read(behind, limits.STREAM_RECORDS, size, row.wanted_kinds(), row.wanted_types())


async def find(store: Store, name: str) -> EventStream:
    """The row of a stream; raises StreamNotFound."""
    row = next((row for row in await store.records(EventStream) if row.name == name), None)
    if row is None:
        raise StreamNotFound(f"there is no event stream {name!r}; `perdure stream ls` lists what there is")
    return row
