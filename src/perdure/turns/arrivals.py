"""Arrivals: the signals and calls of several names, of which the code receives the earliest first.

Letters of one name wait in its mailbox, and behind these in the store. So before one is chosen, the first letters of
each name whose mailbox is empty are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perdure.kernel.checkpoint import WAIT
from perdure.turns.mailbox import Letter, Mailbox

if TYPE_CHECKING:
    from perdure.turns.asking import AskingLoop

Arrival = tuple[Mailbox, Letter]


class _Slot:
    """The one place for a letter, as the receiver in one of the mailboxes."""

    __slots__ = ("arrival", "box")

    def __init__(self, arrival: asyncio.Future[Arrival | None], box: Mailbox) -> None:
        self.arrival = arrival
        self.box = box

    def done(self) -> bool:
        return self.arrival.done()

    def set_result(self, letter: Letter, /) -> None:
        self.arrival.set_result((self.box, letter))


class Arrivals:
    """The mailboxes of these names, as one."""

    def __init__(self, loop: AskingLoop, names: Iterable[str]) -> None:
        self._boxes = [loop.mailbox(name) for name in names]

    async def next(self, loop: AskingLoop, due: int | None) -> Arrival | None:
        """The earliest letter, once there is one; None if the time ``due`` (microseconds) has come before it."""
        while True:
            unread = [box for box in self._boxes if box.more and not box.letters]
            first = min((box for box in self._boxes if box.letters), key=_number, default=None)
            asked = first is not None and first.letters[0][2]
            # One commit does not hold the answers to any number of calls.
            crowded = asked and loop.publications is not None and loop.publications.plenty(loop.runs)
            look = loop.look(bool(unread) or crowded)
            if look:
                await self._look(loop, look, unread)
            elif first is None:
                return await self._wait(loop, due)
            else:
                return first, first.pop(loop)

    @staticmethod
    async def _look(loop: AskingLoop, place: str, unread: Iterable[Mailbox]) -> None:
        """Have the first letters of these names read from the store: the timer fires in the turn that hears them.

        Whether it was needed stands in the history: a replay does it where the history did.
        """
        found = loop.create_future()
        timer = loop.open_timer(loop.now + 1, place, _ring, (found,))
        try:
            for box in unread:
                box.sought = True
            await found
        finally:
            for box in unread:
                box.sought = False
            loop.end_look(timer)

    async def _wait(self, loop: AskingLoop, due: int | None) -> Arrival | None:
        arrival: asyncio.Future[Arrival | None] = loop.create_future()
        for box in self._boxes:
            box.receivers.append(_Slot(arrival, box))
        timer = None
        if due is not None:
            timer = loop.open_timer(max(due, loop.now + 1), loop.place(WAIT) + WAIT, _ring, (arrival,))
        try:
            return await arrival
        finally:
            for box in self._boxes:
                box.receivers.clear()  # nobody else waits there; left in place, only the collector could free both
            if timer is not None:
                timer.cancel()


def _number(box: Mailbox) -> int:
    return box.letters[0][1]


def _ring(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
