"""The values that a process has published, and the stream of those that it publishes while a client follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from perdure import limits
from perdure.client import validation
from perdure.client.parts import ClientParts, Reference
from perdure.clock import Duration
from perdure.errors import InvalidInput, NothingPublished
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import check_name
from perdure.kernel.payload import decode
from perdure.kernel.plain import shown
from perdure.kernel.process import FINAL, Process
from perdure.kernel.run import CONTINUED, opening_of
from perdure.kernel.stored import why_undecodable
from perdure.store.base import Store
from perdure.store.notifications import Notification, StopListening

T = TypeVar("T")
_PUBLISHED = (EventType.PUBLISHED,)

NO_DEFAULT: Any = object()
"""Stands for a default that was not given."""

HINT_GAP_SECONDS = 0.01
"""The pause before a look if a hint does not say which process has published, so that looks are not too many."""


class Followers:
    """The followers of each durable process in this OS process; the store is watched only while there are any."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._waiting: dict[bytes, dict[asyncio.Event, None]] = {}  # in the order in which they came
        self._vague: set[asyncio.Event] = set()
        self._stop: StopListening | None = None

    def add(self, id: bytes, hint: asyncio.Event | None = None) -> asyncio.Event:
        """An event, this one or a new one, that is set whenever the process may have published."""
        hint = asyncio.Event() if hint is None else hint
        self._waiting.setdefault(id, {})[hint] = None
        if self._stop is None:
            self._stop = self.store.watch(self._heard)
        return hint

    def remove(self, id: bytes, hint: asyncio.Event) -> None:
        """Forget an event whose follower has stopped."""
        waiting = self._waiting[id]
        waiting.pop(hint, None)
        self._vague.discard(hint)
        if not waiting:
            del self._waiting[id]
        if not self._waiting and self._stop is not None:
            self._stop()
            self._stop = None

    def vague(self, hint: asyncio.Event) -> bool:
        """Whether the event was set by a notification that named no process; true only once for each."""
        found = hint in self._vague
        self._vague.discard(hint)
        return found

    def _heard(self, notification: Notification) -> None:
        for id in notification.published:
            for hint in self._waiting.get(id, ()):
                hint.set()
        if notification.some_published:
            for hints in self._waiting.values():
                for hint in hints:
                    if not hint.is_set():
                        self._vague.add(hint)
                        hint.set()


class StoredValue(NamedTuple):
    """A published value as it is stored, and in which run."""

    run: int
    event: Event


class Stream(Generic[T]):
    """What ``values`` returns, for ``async for``.

    ``run``, ``number`` and ``name`` are those of the last value; ``values(…, after=stream.number, run=stream.run)``
    goes on after it, in another program too.
    """

    def __init__(self, found: AsyncGenerator[StoredValue, None], type: Any, run: int | None, after: int) -> None:
        self._found = found
        self._type = type
        self.run = run
        self.number = after
        self.name: str | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        found = await anext(self._found)
        self.run, self.number, self.name = found.run, found.event.number, found.event.name
        value: T = decoded(found.event, self._type)
        return value

    async def aclose(self) -> None:
        """Stop following."""
        await self._found.aclose()


class Published(Reference):
    """The part of a handle that reads what the process has published."""

    __slots__ = ()

    @overload
    async def value(self, name: str, type: type[T], *, wait: Duration = 0, default: T = NO_DEFAULT) -> T: ...
    @overload
    async def value(self, name: str, type: Any = Any, *, wait: Duration = 0, default: Any = NO_DEFAULT) -> Any: ...
    async def value(self, name: str, type: Any = Any, *, wait: Duration = 0, default: Any = NO_DEFAULT) -> Any:
        """Return the value that the process has published last under this name, as ``type``.

        If there is none yet, wait up to ``wait`` seconds for the first one, but not longer than the process runs; then
        return ``default``, or raise NothingPublished. If the run has continued the one before as new, and has published
        nothing under this name yet, the last value of the run before counts. Raises PayloadError if the value does not
        fit the type, InvalidKey, InvalidInput, ProcessNotFound.
        """
        check_name(name, "the name of the value")
        patience = validation.timeout(wait)
        row = await self._parts.row(self.id_bytes)
        found = await self._last(row, name)
        if found is None and patience != 0 and row.status not in FINAL:
            found = await self._first(row, name, patience)
        if found is not None:
            return decoded(found, type)
        if default is not NO_DEFAULT:
            return default
        raise NothingPublished(
            f"this process has published nothing as {name!r} yet; give wait= or default=, or see `perdure values`"
        )

    async def _last(self, row: Process, name: str) -> Event | None:
        found = await self._backward(row, row.run, name)
        if not found and row.run > 1:
            opening = opening_of(await self._parts.store.history(row.id, row.run, limit=1))
            if opening.done == CONTINUED:
                found = await self._backward(row, row.run - 1, name)
        return found[0] if found else None

    async def _backward(self, row: Process, run: int, name: str) -> list[Event]:
        return await self._parts.store.history(row.id, run, limit=1, backward=True, types=_PUBLISHED, names=(name,))

    async def _first(self, row: Process, name: str, patience: float | None) -> Event | None:
        found = self._found(name, row.run, 0, follow=True)
        try:
            async with asyncio.timeout(patience):
                return (await anext(found)).event
        except (StopAsyncIteration, TimeoutError):
            return None
        finally:
            await found.aclose()

    @overload
    def values(
        self, name: str | None, type: type[T], *, after: int = 0, run: int | None = None,
        follow: bool = True,
    ) -> Stream[T]: ...  # fmt: skip
    @overload
    def values(
        self, name: str | None = None, type: Any = Any, *, after: int = 0, run: int | None = None,
        follow: bool = True,
    ) -> Stream[Any]: ...  # fmt: skip
    def values(
        self, name: str | None = None, type: Any = Any, *, after: int = 0, run: int | None = None,
        follow: bool = True,
    ) -> Stream[Any]:  # fmt: skip
        """The values that the process publishes under this name (default: under any name), for ``async for``.

        First the stream gives the values that the current run has published, then each new one when it is committed. It
        ends when the process has ended or is broken; without ``follow``, after the values that exist. ``run`` is the
        run to begin with, ``after`` the number in it after which to begin. Values that a later run has kept of the run
        before are not given again. Raises InvalidKey and InvalidInput; the stream, ProcessNotFound and PayloadError.
        """
        if name is not None:
            check_name(name, "the name of the value")
        if not isinstance(after, int) or not 0 <= after < 1 << 31:
            raise InvalidInput(f"after= is {shown(after)}. Give the number of a value: the `number` of a stream.")
        found = self._found(name, run, after, follow=follow)
        return Stream(found, type, run, after)

    async def _found(
        self, name: str | None, run: int | None, after: int, *, follow: bool
    ) -> AsyncGenerator[StoredValue, None]:
        row = await self._parts.row(self.id_bytes)
        if run is not None and not 1 <= run <= row.run:
            raise InvalidInput(f"there is no run {run}: the process is in run {row.run}. Leave it out, or correct it.")
        tail = _Tail(self._parts, self.id_bytes, name, row.run if run is None else run, after, row.run)
        try:
            over = not follow or row.status in FINAL
            while True:
                found = await tail.read()
                for event in found:
                    yield StoredValue(tail.run, event)
                if found and (over or not tail.listens or len(found) == limits.VALUE_ROWS):
                    continue
                if not found and await tail.moved_on():
                    over = not follow
                elif not found and over:
                    return
                else:
                    over = await tail.wait()
        finally:
            tail.close()


class _Tail:
    """The position of a follower: the run, and the number of the value that was read last."""

    def __init__(self, parts: ClientParts, id: bytes, name: str | None, run: int, after: int, last: int) -> None:
        self.run = run
        self._last = last
        self._parts = parts
        self._id = id
        self._names = () if name is None else (name,)
        self._after = after
        self._hint: asyncio.Event | None = None
        self._end: asyncio.Task[Process] | None = None
        self._patience = HINT_GAP_SECONDS

    @property
    def listens(self) -> bool:
        """Whether notifications announce new values to this follower by now."""
        return self._hint is not None

    async def read(self) -> list[Event]:
        """The next values of the run, if there are any now."""
        found = await self._parts.store.history(
            self._id, self.run, after=self._after, limit=limits.VALUE_ROWS, types=_PUBLISHED, names=self._names
        )
        if found:
            self._after = found[-1].number
            self._patience = HINT_GAP_SECONDS
        return found

    async def moved_on(self) -> bool:
        """Whether a later run has begun, so that there may be more to read.

        Moves on to it once this run is read to its end, behind the values that the later run has kept of this one.
        """
        opened = await self._parts.store.history(self._id, self.run + 1, limit=1)
        if not opened and self.run + 1 < self._last:  # that run was pruned: skip it
            self.run, self._after = self.run + 1, 0
            return True
        if not opened:
            return False
        if not await self._was_the_last():
            return True
        self.run += 1
        self._after = opening_of(opened).kept + 1
        return True

    async def _was_the_last(self) -> bool:
        """Whether this run, which is over, has no more values after those that were read."""
        left = await self._parts.store.history(
            self._id, self.run, after=self._after, limit=1, types=_PUBLISHED, names=self._names
        )
        return not left

    async def wait(self) -> bool:
        """Wait until there may be new values; returns whether the process had ended by then."""
        if self._hint is None:
            self._hint = self._parts.followers.add(self._id)
            return False  # look once more: only from now on do notifications come
        hint = self._hint
        if self._end is None or (self._end.done() and self._end.result().run < self.run):
            self._end = asyncio.create_task(self._parts.ended(self._id))
            self._end.add_done_callback(partial(ended, hint.set))
        try:
            async with asyncio.timeout(self._patience):
                await hint.wait()
        except TimeoutError:
            self._patience = min(2 * self._patience, limits.POLL_SECONDS)
        if self._parts.followers.vague(hint):
            await asyncio.sleep(HINT_GAP_SECONDS)
        hint.clear()
        return self._end.done() and self._end.result().run <= self.run

    def close(self) -> None:
        """Stop waiting for values and for the end of the process."""
        if self._end is not None:
            self._end.cancel()
        if self._hint is not None:
            self._parts.followers.remove(self._id, self._hint)


def ended(wake: Callable[[], None], end: asyncio.Future[Process]) -> None:
    """Wake the follower: its wait for the end is over. An error is marked as retrieved, and the follower raises it."""
    if not end.cancelled():
        end.exception()
    wake()


def decoded(event: Event, type: Any) -> Any:
    """The payload of an event, decoded to ``type``; raises PayloadError, UnreadablePayload."""
    raw = event.payload or b"null"
    if why := why_undecodable(raw):
        raise why
    return decode(raw, type)
