"""The batches of an event stream, one after the other; the position moves when the next one is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from perdure import limits
from perdure.clock import Computer
from perdure.errors import IllegalMove, StoreUnavailable
from perdure.kernel.stream import LogPage
from perdure.logs import logger
from perdure.store.base import Store
from perdure.streaming.reader import StreamReader
from perdure.streaming.record import StreamRecord, record_of

log = logger("stream")


class StreamBatches:
    """What ``engine.streams.read`` returns: batches of records, for ``async for``.

    Asking for the next batch says that the one before was handled: then the position moves. A program that dies before
    gets that batch again, and so does one whose loop ends by an error or by ``break``: call :meth:`handled` before.
    Used with ``async with`` it gives the stream back at the end; else another reader waits until the lease has ended.
    """

    def __init__(self, store: Store, name: str, machine: Computer, *, wait: bool, sink: str | None = None) -> None:
        self.reader = StreamReader(store, name, machine)
        self._sink = sink
        self._store = store
        self._wait = wait
        self._upto: int | None = None
        self._hint = hint = asyncio.Event()
        # Without a reference to this object: whoever leaves it without a word keeps no lease by it.
        self._unwatch = store.watch(lambda notification: hint.set())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[StreamRecord]:
        """The next batch, of one record or more; raises StreamNotFound, IllegalMove, StoreError."""
        while True:
            try:
                await self.handled()
                page = await self._next()
            except StoreUnavailable as error:
                if not self._wait:
                    raise
                log.warning("event stream %s waits for the database: %s", self.reader.name, error)
                self._hint.clear()  # what it tells of is found after the pause
                await self._pause()
                continue
            if page is not None and page.events:
                self._upto = page.upto
                return [record_of(one) for one in page.events]
            if page is None:
                if not self._wait or (self._sink is not None and not self.ours):
                    await self.aclose()
                    raise StopAsyncIteration
                await self._pause()

    @property
    def ours(self) -> bool:
        """Whether the stream is still read here, and still goes to the sink for which it is read, if to any."""
        row = self.reader.row
        return row is not None and self._sink in (None, row.sink)

    def not_handled(self) -> None:
        """Say that the last batch was not handled: it comes again."""
        self._upto = None

    async def handled(self) -> None:
        """Say that all records of the last batch were handled, so that none of them comes again; raises StoreError."""
        if self._upto is not None and self.reader.held:
            # If we die here, or before, the batch comes again: to this program or to another reader.
            await self.reader.moved(self._upto)
        self._upto = None

    async def aclose(self) -> None:
        """Give the stream back; a batch that was not handled comes again."""
        self._unwatch()
        self._upto = None
        try:
            await self.reader.release()
        except StoreUnavailable:
            pass  # the lease ends by itself

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the stream back: see :meth:`aclose`."""
        await self.aclose()

    async def _next(self) -> LogPage | None:
        """The next page, in which there may be nothing that is wanted; None if there is none now."""
        self._hint.clear()
        reader = self.reader
        if not reader.held and not await reader.take():
            if not self._wait:
                raise IllegalMove(f"event stream {reader.name} is being read by {reader.holder}; stop that, or wait")
            return None
        if not self.ours:
            return None
        page = await reader.page()
        if page.events:
            return page
        if page.upto == reader.position:
            return None
        # Nothing of this was wanted: it is behind us all the same.
        await reader.moved(page.upto)
        return page

    async def _pause(self) -> None:
        """Wait until something may have been committed; notifications do not tell of everything."""
        try:
            async with asyncio.timeout(limits.STREAM_POLL_SECONDS):
                await self._hint.wait()
        except TimeoutError:
            pass
