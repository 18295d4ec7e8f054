"""The results of many processes in one call: they are looked up by the thousand, and cost no task each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, overload

from perdure.client import validation
from perdure.client.handle import Handle
from perdure.client.parts import ClientParts, unknown
from perdure.client.results import SETTLED, outcome, too_late
from perdure.client.whole_rows import rows_of
from perdure.clock import Duration
from perdure.errors import InvalidInput, PerdureError
from perdure.kernel.plain import shown
from perdure.kernel.process import Process

R = TypeVar("R")


class ManyResults:
    """The part of a client that waits for many processes."""

    parts: ClientParts

    @overload
    async def results(self, handles: Iterable[Handle[R]], timeout: Duration | None = None) -> list[R]: ...
    @overload
    async def results(
        self, handles: Iterable[Handle[R]], timeout: Duration | None = None, *, return_exceptions: bool
    ) -> list[R | Exception]: ...
    async def results(
        self, handles: Iterable[Handle[Any]], timeout: Duration | None = None, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait until all these processes have ended, and return their results in the order of the handles.

        ``timeout`` (seconds, by default never) is for all together. The first in that order that has no result raises
        what :meth:`Handle.result` would raise, TimeoutError too; all processes go on. With ``return_exceptions`` such
        errors take the places of the results instead. Raises InvalidInput for what is no handle of this engine.
        """
        validation.outside_a_turn()
        limit = validation.timeout(timeout)
        every = _checked(self.parts, handles)
        read = await _read(self.parts, every, limit)
        ends = _Ends(self.parts, limit, return_exceptions)
        try:
            ends.expect(every, read)
            return await ends.results()
        finally:
            ends.expect_no_more()


def _checked(parts: ClientParts, handles: Iterable[Handle[Any]]) -> Sequence[Handle[Any]]:
    every = tuple(handles)
    for handle in every:
        if not isinstance(handle, Handle) or handle._parts is not parts:
            raise InvalidInput(
                f"{shown(handle)} is no handle of this engine. Give what its start, start_many, handle or process "
                "has returned."
            )
    return every


async def _read(
    parts: ClientParts, handles: Sequence[Handle[Any]], limit: float | None
) -> dict[bytes, Process | PerdureError]:
    """What is known before anybody waits, as :meth:`Handle.result` reads it: ends, and who is not there."""
    ids = {handle.id_bytes for handle in handles if handle._reads_first(limit)}
    read: dict[bytes, Process | PerdureError] = {id: unknown(id) for id in ids}
    for row in await rows_of(parts.store, list(ids)):
        if row.status in SETTLED:
            read[row.id] = row
        else:
            del read[row.id]
    return read


class _Ends:
    """The ends of processes that are still awaited, in order; a row is let go as soon as its result is decoded."""

    def __init__(self, parts: ClientParts, limit: float | None, return_exceptions: bool) -> None:
        self._parts = parts
        self._limit = limit
        self._return_exceptions = return_exceptions
        self._awaited: deque[tuple[Handle[Any], asyncio.Future[Process]]] = deque()
        self._results: list[Any] = []

    def expect(self, handles: Sequence[Handle[Any]], read: dict[bytes, Process | PerdureError]) -> None:
        """Wait for these from now on, but for what has been read already."""
        expect, holds = self._parts.results.expect, self._parts.local.holds
        for handle in handles:
            id = handle.id_bytes
            known = read.get(id)
            self._awaited.append((handle, expect(id, here=holds(id)) if known is None else _done(known)))

    async def results(self) -> list[Any]:
        """The results in order, or errors in their places; what is not there in time counts as late."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit):
                while self._awaited:
                    end = self._awaited[0][1]
                    if not end.done():
                        await asyncio.wait((end,))  # which leaves the future alone when time is up
                    self._take()
        while self._awaited:
            self._take()
        return self._results

    def _take(self) -> None:
        handle, end = self._awaited.popleft()
        try:
            if not end.done():
                self._parts.results.expect_no_more(handle.id_bytes, end)
                raise too_late(handle.id, self._limit or 0.0)
            self._results.append(outcome(end.result(), handle.result_type))
        except (PerdureError, TimeoutError) as error:
            if not self._return_exceptions:
                raise
            self._results.append(error)

    def expect_no_more(self) -> None:
        """An error, or a cancellation, has come before all had ended: nobody waits for the others any longer."""
        for handle, end in self._awaited:
            if end.done():
                end.exception()  # it was seen: asyncio need not log it
            self._parts.results.expect_no_more(handle.id_bytes, end)


def _done(known: Process | PerdureError) -> asyncio.Future[Process]:
    """The end of a process that is known without waiting."""
    end: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
    if isinstance(known, Process):
        end.set_result(known)
    else:
        end.set_exception(known)
    return end
