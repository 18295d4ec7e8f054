"""The answers to calls: told by our own worker, or looked up in the histories of other workers' processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from perdure import limits
from perdure.kernel.event import ANSWERS, Event
from perdure.store.base import Store

_ANSWERS = tuple(sorted(ANSWERS))


class Answers:
    """Looks for the answers to calls; one query looks for all that are wanted of one process at one moment.

    What our own worker writes is told here, and no query is made for it. ``open`` are the calls that wait here for
    their answers, by process and name, each with the event that wakes its caller; ``waiting`` counts the calls under
    way.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waiting = 0
        self.open: dict[tuple[bytes, str], asyncio.Event] = {}
        self._told: dict[tuple[bytes, str], Event] = {}
        self._wanted: dict[bytes, dict[str, list[asyncio.Future[Event | None]]]] = {}
        self._looks: set[asyncio.Task[None]] = set()

    def told(self, id: bytes, events: Sequence[Event]) -> None:
        """Our own worker has written these events: wake the callers whose answers are among them."""
        for event in events:
            if event.type in ANSWERS and (hint := self.open.get((id, event.name))) is not None:
                self._told[id, event.name] = event
                hint.set()

    def begin(self, id: bytes, name: str, hint: asyncio.Event) -> None:
        """From now on ``hint`` is set when the answer to this call is told here."""
        self.open[id, name] = hint

    def end(self, id: bytes, name: str) -> None:
        """Nobody waits for the answer to this call any more."""
        self.open.pop((id, name), None)
        self._told.pop((id, name), None)

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
