"""The answers to calls: told by our own worker, or looked up in the histories of other workers' processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from perdure import limits
from perdure.kernel.event import ANSWERS, Event
from perdure.store.base import Store

_ANSWERS = tuple(sorted(ANSWERS))

HELD_POLL_SECONDS = 5.0
"""So seldom does a caller look by itself while our own worker holds the process, and tells what it has written."""


class CallHint(asyncio.Event):
    """Wakes a caller: there may be an answer. What the store tells counts only if the process is not ``held`` here.

    Of what our own worker has written the store tells too, often before that worker knows that it has.
    """

    def __init__(self, held: Callable[[], bool]) -> None:
        super().__init__()
        self._held = held

    def set(self) -> None:
        """The store has told of something."""
        if not self._held():
            super().set()

    def wake(self) -> None:
        """Our own worker has told of something, or it is time to look."""
        super().set()


class Answers:
    """Looks for the answers to calls; one query looks for all that are wanted of one process at one moment.

    What our own worker writes is told here, and no query is made for it. ``open`` are the calls that wait here for
    their answers, by process and by name, with a hint for each caller: one call may have several, under one key.
    ``waiting`` counts the calls under way.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waiting = 0
        self.open: dict[bytes, dict[str, list[CallHint]]] = {}
        self._poll: asyncio.TimerHandle | None = None
        self._told: dict[tuple[bytes, str], Event] = {}
        self._wanted: dict[bytes, dict[str, list[asyncio.Future[Event | None]]]] = {}
        self._looks: set[asyncio.Task[None]] = set()

    def told(self, id: bytes, events: Sequence[Event]) -> None:
        """Our own worker has written these events: wake the callers whose answers are among them."""
        waiting = self.open.get(id)
        if waiting is None:
            return
        for event in events:
            if event.type in ANSWERS and (hints := waiting.get(event.name)) is not None:
                self._told[id, event.name] = event
                for hint in hints:
                    hint.wake()

    def wake(self, id: bytes) -> None:
        """Let the callers of a process look for their answers: our own worker holds it no more, or it is time."""
        for hints in self.open.get(id, {}).values():
            for hint in hints:
                hint.wake()

    def begin(self, id: bytes, name: str, hint: CallHint) -> None:
        """From now on ``hint`` wakes the caller when the answer to this call is told here, and now and then."""
        self.open.setdefault(id, {}).setdefault(name, []).append(hint)
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(HELD_POLL_SECONDS, self._wake_all)

    def _wake_all(self) -> None:
        self._poll = None
        for id in self.open:
            self.wake(id)
        if self.open:
            self._poll = asyncio.get_running_loop().call_later(HELD_POLL_SECONDS, self._wake_all)

    def end(self, id: bytes, name: str, hint: CallHint) -> None:
        """This caller does not wait any more."""
        waiting = self.open[id]
        waiting[name].remove(hint)
        if not waiting[name]:
            del waiting[name]
            self._told.pop((id, name), None)
            if not waiting:
                del self.open[id]

    def known(self, id: bytes, name: str) -> Event | None:
        """The answer to a call that waits here, if it was told."""
        return self._told.get((id, name))

    async def find(self, id: bytes, name: str) -> Event | None:
        """The answer to the call ``name`` (``quote:7``: its name and message number); None if there is none yet."""
        future: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        wanted = self._wanted.get(id)
        if wanted is None:
            wanted = self._wanted[id] = {}
            look = asyncio.create_task(self._look(id))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        wanted.setdefault(name, []).append(future)
        return await future

    async def _look(self, id: bytes) -> None:
        wanted = self._wanted.pop(id)
        names = iter(wanted)
        while some := tuple(islice(names, limits.LIST_ROWS)):
            try:
                found = await self.store.history(id, 1, limit=len(some), types=_ANSWERS, names=some)
            except Exception as error:
                self._tell((future for name in some for future in wanted[name]), error)
                continue
            answers = {event.name: event for event in found}
            for name in some:
                self._tell(wanted[name], answers.get(name))

    @staticmethod
    def _tell(futures: Any, answer: Event | Exception | None) -> None:
        for future in futures:
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
