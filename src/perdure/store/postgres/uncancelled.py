"""How a write is run: nobody who goes away can cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Uncancelled:
    """Runs a coroutine without a task: it begins at once, inside its maker, and nobody can cancel it.

    A task would begin in the next round of the event loop, and be done one round before its awaiter hears of it:
    on an idle system those two rounds are a tenth of what a commit takes.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._go(None)

    def _go(self, _: object) -> None:
        try:
            awaited = self._work.send(None)
        except StopIteration:
            return
        if awaited is None:
            asyncio.get_running_loop().call_soon(self._go, None)
            return
        # The protocol between a coroutine and what runs it: a future is yielded with this mark set.
        awaited._asyncio_future_blocking = False
        awaited.add_done_callback(self._go)
