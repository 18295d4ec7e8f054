"""A mailbox: the signals and calls of one name that a process has heard but its code has not yet received."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from perdure.authoring.call import Call, value_type
from perdure.errors import PayloadError, UnreadablePayload
from perdure.kernel import payload

if TYPE_CHECKING:
    from perdure.authoring.turn_loop import TurnLoop

Letter: TypeAlias = tuple[bytes, int, bool]
"""A message's payload, its number in the inbox, and whether its sender waits for an answer."""

_A_MOMENT = 0.000_001


class Mailbox:
    """Signals and calls in the order of the inbox; receivers that wait get them in the order in which they came.

    Either there are letters and nobody waits, or somebody waits and there are no letters. ``unanswered`` are the
    numbers of the calls that the code has received and not answered.
    """

    __slots__ = ("letters", "name", "receivers", "unanswered")

    def __init__(self, name: str) -> None:
        self.name = name
        self.letters: deque[Letter] = deque()
        self.receivers: deque[asyncio.Future[Letter]] = deque()
        self.unanswered: set[int] = set()

    def put(self, letter: Letter) -> None:
        """Hand a message to the first receiver, or keep it."""
        if not self._hand_over(letter):
            self.letters.append(letter)

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a message of this name."""
        return any(not receiver.done() for receiver in self.receivers)

    @property
    def left(self) -> Iterator[int]:
        """The numbers of what was not received, or not answered, in no order."""
        yield from self.unanswered
        for _, number, _ in self.letters:
            yield number

    async def take(self, loop: TurnLoop, type: Any, timeout: float | None) -> Any:
        """The next message as ``type``; TimeoutError after ``timeout`` seconds, PayloadError if it does not fit.

        A call that does not fit is refused, and the one after it is waited for.
        """
        wanted = value_type(type)
        until = None if timeout is None else loop.time() + timeout
        left = timeout
        while True:
            if self.letters and self.letters[0][2] and loop.publications and loop.publications.plenty(loop.runs):
                await asyncio.sleep(_A_MOMENT)  # one commit is not to hold the answers to any number of calls
            letter, number, asked = self.letters.popleft() if self.letters else await self._wait(left, timeout)
            if not asked and wanted is None:
                return payload.decode(letter, type, what=f"signal {self.name!r}")
            what = f"{'call' if asked else 'signal'} {self.name!r}"
            call: Call[Any] = Call(loop, self, number if asked else 0, letter)
            try:
                call.value = payload.decode(letter, type if wanted is None else wanted[0], what=what)
            except PayloadError as error:
                if not asked or isinstance(error, UnreadablePayload):
                    raise
                call.answer(error)
                left = None if until is None else max(0.0, until - loop.time())
                continue
            if wanted is not None:
                return call
            call.answer(None)
            return call.value

    async def _wait(self, left: float | None, timeout: float | None) -> Letter:
        loop = asyncio.get_running_loop()
        receiver: asyncio.Future[Letter] = loop.create_future()
        self.receivers.append(receiver)
        timer = None if left is None else loop.call_later(left, self._expire, receiver, timeout)
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

    def _expire(self, receiver: asyncio.Future[Letter], timeout: float | None) -> None:
        if not receiver.done():
            receiver.set_exception(TimeoutError(f"no signal {self.name!r} came within {timeout:g} s"))
