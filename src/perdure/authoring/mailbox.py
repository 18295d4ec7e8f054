"""A mailbox: the signals of one name that a process has heard but its code has not yet received."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from perdure.kernel import payload

Letter = tuple[bytes, int]
"""A signal's payload, and its number in the inbox."""


class Mailbox:
    """Signals in the order of the inbox; receivers that wait get them in the order in which they came.

    Either there are letters and nobody waits, or somebody waits and there are no letters.
    """

    __slots__ = ("letters", "name", "receivers")

    def __init__(self, name: str) -> None:
        self.name = name
        self.letters: deque[Letter] = deque()
        self.receivers: deque[asyncio.Future[Letter]] = deque()

    def put(self, letter: Letter) -> None:
        """Hand a signal to the first receiver, or keep it."""
        if not self._hand_over(letter):
            self.letters.append(letter)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a signal of this name."""
        return any(not receiver.done() for receiver in self.receivers)

    async def take(self, type: Any, timeout: float | None) -> Any:
        """The next signal as ``type``; TimeoutError after ``timeout`` seconds, PayloadError if it does not fit."""
        letter, _ = self.letters.popleft() if self.letters else await self._wait(timeout)
        return payload.decode(letter, type, what=f"signal {self.name!r}")

    async def _wait(self, timeout: float | None) -> Letter:
        loop = asyncio.get_running_loop()
        receiver: asyncio.Future[Letter] = loop.create_future()
        self.receivers.append(receiver)
        timer = None if timeout is None else loop.call_later(timeout, self._expire, receiver, timeout)
        try:
            return await receiver
        except asyncio.CancelledError:
            if receiver.done() and not receiver.cancelled():  # handed over in the turn that cancelled us: give it back
                letter = receiver.result()
                if not self._hand_over(letter):
                    self.letters.appendleft(letter)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _hand_over(self, letter: Letter) -> bool:
        while self.receivers:
            receiver = self.receivers.popleft()
            if not receiver.done():
                receiver.set_result(letter)
                return True
        return False

    def _expire(self, receiver: asyncio.Future[Letter], timeout: float) -> None:
        if not receiver.done():
            receiver.set_exception(TimeoutError(f"no signal {self.name!r} came within {timeout:g} s"))
