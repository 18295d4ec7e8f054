"""A mailbox: the signals and calls of one name that a process has heard but its code has not yet received.

A letter is in the history once the code has received it. Until then it waits in the inbox, in the store; the mailbox
holds those that were read already. At replay the code receives each letter in the same turn as before. A call is a
question to a running process, as its code receives and answers it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, get_args, get_origin

from perdure import limits
from perdure.errors import PayloadError, UnreadablePayload, WorkflowMisuse
from perdure.kernel import payload
from perdure.kernel.context import read
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import call_text
from perdure.kernel.reading import check_receivable
from perdure.turns.publication import Publication, publications_of

if TYPE_CHECKING:
    from perdure.turns.asking import AskingLoop

Letter: TypeAlias = tuple[bytes, int, bool, bool]
"""A payload, its number in the inbox, whether its sender waits for an answer, and whether the history has it."""

_A_MOMENT = 0.000_001
T = TypeVar("T")


class Receiver(Protocol):
    """What waits for a letter: a future, or the one place for the letters of several names."""

    def done(self) -> bool:
        """Whether it waits no more."""

    def set_result(self, result: Letter, /) -> None:
        """Give it a letter."""


_is_done = methodcaller("done")


class Mailbox:
    """Signals and calls in the order of the inbox; waiting receivers get them in the order in which they came.

    Either letters wait here or receivers do, never both. ``unanswered`` are the numbers of the calls that the code has
    received and not answered, and of what it has borrowed. All letters up to the number ``cursor`` are here, or were;
    the store may have more of them up to the number ``behind``, which are read if they are ``sought``, before anybody
    waits for them.
    """

    __slots__ = ("asked", "behind", "cursor", "letters", "name", "receivers", "size", "sought", "unanswered")

    def __init__(self, name: str, behind: int = 0) -> None:
        self.name = name
        self.cursor = 0
        self.behind = behind
        self.asked = 0
        self.sought = False
        self.size = 0
        self.letters: deque[Letter] = deque()
        self.receivers: deque[Receiver] = deque()
        self.unanswered: set[int] = set()

    def put(self, letter: Letter) -> None:
        """Hand a message to the first receiver, or keep it."""
        self.cursor = max(self.cursor, letter[1])
        if not self._hand_over(letter):
            self.letters.append(letter)
            self.size += len(letter[0])

    @property
    def awaited(self) -> bool:
        """Whether a receiver waits for a message of this name."""
        return not all(map(_is_done, self.receivers))

    @property
    def more(self) -> bool:
        """Whether there may be letters in the store that come before any new one."""
        return self.behind > self.cursor

    @property
    def wanting(self) -> bool:
        """Whether a letter is wanted that may be in the store."""
        return self.behind > self.cursor and (self.sought or self.awaited)

    @property
    def room(self) -> bool:
        """Whether there is room in memory for more letters that no receiver waits for."""
        return self.size < limits.MAILBOX_BYTES

    def leave(self, number: int) -> None:
        """Leave a letter in the store: it is read when a receiver waits for it."""
        self.behind = number

    def rewind(self) -> None:
        """Have the letters in the store read from the first on."""
        self.cursor = 0

    def read(self, asked: int, upto: int) -> None:
        """Note that the ``asked`` letters were read from the store: it has no others up to the number ``upto``."""
        self.asked = asked
        self.cursor = max(self.cursor, upto)

    @property
    def left(self) -> Iterator[int]:
        """The numbers of letters that the history has and the code has not received, or not answered; in no order."""
        yield from self.unanswered
        for _, number, _, recorded in self.letters:
            if recorded:
                yield number

    async def take(self, loop: AskingLoop, type: Any, timeout: float | None) -> Any:
        """The next message as ``type``; TimeoutError after ``timeout`` seconds, PayloadError if it does not fit.

        A call that does not fit is refused, and the wait goes on for the next one.
        """
        wanted = value_type(type)
        check_receivable(type if wanted is None else wanted[0])
        until = None if timeout is None else loop.time() + timeout
        left = timeout
        while True:
            if self.letters and self.letters[0][2] and loop.publications and loop.publications.plenty(loop.runs):
                self._record(loop)  # the code has seen that it was there
                await asyncio.sleep(_A_MOMENT)  # so that one commit does not hold the answers to any number of calls
            if self.letters:
                letter, number, asked, _ = self.pop(loop)
            else:
                look = loop.look(self.more) if left is not None and left <= 0 else ""
                letter, number, asked, _ = await self._wait(loop, left, timeout, look)
            if not asked and wanted is None:
                return payload.decode(letter, type, what=f"signal {self.name!r}")
            what = f"{'call' if asked else 'signal'} {self.name!r}"
            call: Call[Any] = Call(loop, self, number if asked else 0, letter, loop.take_context(number))
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

    async def borrow(self, loop: AskingLoop, type: type[T]) -> Borrowed[T]:
        """The next message as ``type``, for now: it goes back into the inbox if this run ends before it is settled.

        PayloadError if it does not fit. A call counts as answered, and does not go back.
        """
        letter, number, asked, _ = self.pop(loop) if self.letters else await self._wait(loop, None, None, "")
        call: Call[Any] = Call(loop, self, number if asked else 0, letter, loop.take_context(number))
        try:
            value = payload.decode(letter, type, what=f"signal {self.name!r}")
        except PayloadError as error:
            if asked:
                call.answer(error)
            raise
        if asked:
            call.answer(None)
        else:
            self.unanswered.add(number)
        return Borrowed(value, number, len(letter))

    def settle(self, number: int) -> None:
        """The letter of that number was borrowed, and need not go back."""
        self.unanswered.discard(number)

    def pop(self, loop: AskingLoop) -> Letter:
        """Take the first letter that is here."""
        self._record(loop)
        letter = self.letters.popleft()
        self.size -= len(letter[0])
        return letter

    def _record(self, loop: AskingLoop) -> None:
        """Note that the code has seen the first letter in this turn."""
        payload, number, asked, recorded = self.letters[0]
        if not recorded:
            self.letters[0] = (payload, number, asked, True)
            loop.receive(number, self.name)

    async def _wait(self, loop: AskingLoop, left: float | None, timeout: float | None, look: str) -> Letter:
        receiver: asyncio.Future[Letter] = loop.create_future()
        self.receivers.append(receiver)
        timer: Any = None
        if look:
            timer = loop.open_timer(loop.now + 1, look, self._expire, (receiver, timeout))
        elif left is not None:
            timer = loop.call_later(left, self._expire, receiver, timeout)
        try:
            return await receiver
        except asyncio.CancelledError:
            given = receiver.done() and not receiver.cancelled() and receiver.exception() is None
            if given:  # handed over in the turn that cancelled us: give it back
                letter = receiver.result()
                if not self._hand_over(letter):
                    self._put_back(letter)
            else:
                with suppress(ValueError):  # its time was over, or a letter passed it by
                    self.receivers.remove(receiver)
            raise
        finally:
            if look:
                loop.end_look(timer)
            elif timer is not None:
                timer.cancel()

    def _put_back(self, letter: Letter) -> None:
        """Keep a letter that a receiver has given back, in front of all later ones: others may have done so before."""
        later = (place for place, other in enumerate(self.letters) if other[1] > letter[1])
        self.letters.insert(next(later, len(self.letters)), letter)
        self.size += len(letter[0])

    def _hand_over(self, letter: Letter) -> bool:
        while self.receivers:
            receiver = self.receivers.popleft()
            if not receiver.done():
                receiver.set_result(letter)
                return True
        return False

    def _expire(self, receiver: asyncio.Future[Letter], timeout: float | None) -> None:
        if not receiver.done():
            self.receivers.remove(receiver)
            receiver.set_exception(TimeoutError(f"no signal {self.name!r} came within {timeout:g} s"))


class Borrowed(NamedTuple, Generic[T]):
    """A message that was received for now: its value, its number in the inbox, and how many bytes it takes there."""

    value: T
    number: int
    size: int


class Call(Generic[T]):
    """What ``await receive("quote", Call[Quote])`` gives: ``value`` is what was asked, and its sender waits.

    A signal of that name is received like a call whose sender does not wait.
    """

    __slots__ = ("_context", "_digest", "_loop", "_mailbox", "_number", "answered", "value")

    value: T

    def __init__(
        self, loop: AskingLoop, mailbox: Mailbox, number: int, letter: bytes, context: str | None = None
    ) -> None:
        self.answered = False
        self._context = context
        self._loop = loop
        self._mailbox = mailbox
        self._number = number
        self._digest = payload.digest(letter) if number else None
        if number:
            mailbox.unanswered.add(number)

    def __repr__(self) -> str:
        return f"<Call {self._mailbox.name}>"

    def answer(self, answer: object = None) -> None:
        """Answer with a value, or refuse with an exception: with the commit of this turn, and once.

        Raises PayloadError, and WorkflowMisuse if it was answered before or another process's code answers.
        """
        loop = self._loop
        if self.answered:
            raise WorkflowMisuse(f"the call {self._mailbox.name!r} was answered before. Answer it once.")
        if loop.dead:
            return
        if not loop.is_running():
            raise WorkflowMisuse(f"the call {self._mailbox.name!r} is answered by the workflow that received it.")
        if isinstance(answer, BaseException):
            self._tell(EventType.CALL_REFUSED, Failure.of(answer).encode())
        else:
            self.answer_raw(payload.encode(answer, what=f"the answer to the call {self._mailbox.name!r}"))

    @property
    def context(self) -> dict[str, Any]:
        """The context that came with it, empty if none did; raises UnreadablePayload."""
        return read(self._context)

    @property
    def asked(self) -> bool:
        """Whether its sender waits for an answer."""
        return self._number != 0

    def answer_raw(self, answer: bytes) -> None:
        """Answer with a value that is encoded already."""
        self._tell(EventType.CALL_ANSWERED, answer)

    def _tell(self, type: EventType, raw: bytes) -> None:
        loop = self._loop
        self.answered = True
        if self._number:
            self._mailbox.unanswered.discard(self._number)
            told = Publication("", call_text(self._mailbox.name, self._number), raw, type, self._digest)
            publications_of(loop).add(told, loop.runs)


def value_type(type: Any) -> tuple[Any] | None:
    """The type of the value, if a call is wanted."""
    if type is Call:
        return (Any,)
    if get_origin(type) is not Call:
        return None
    (of_value,) = get_args(type)
    return (of_value,)
