"""A call: a question to a running process, as its code receives and answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

from perdure.authoring.publication import Publication, publications_of
from perdure.errors import WorkflowMisuse
from perdure.kernel import payload
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import call_text

if TYPE_CHECKING:
    from perdure.authoring.mailbox import Mailbox
    from perdure.authoring.turn_loop import TurnLoop

T = TypeVar("T")


class Call(Generic[T]):
    """What ``await receive("quote", Call[Quote])`` gives: ``value`` is what was asked, and whoever asked waits.

    A signal of that name is received like a call whose answer nobody waits for.
    """

    __slots__ = ("_digest", "_loop", "_mailbox", "_number", "answered", "value")

    value: T

    def __init__(self, loop: TurnLoop, mailbox: Mailbox, number: int, letter: bytes) -> None:
        self.answered = False
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
        refused = isinstance(answer, BaseException)
        type = EventType.CALL_REFUSED if refused else EventType.CALL_ANSWERED
        raw = Failure.of(answer).encode() if isinstance(answer, BaseException) else self._encoded(answer)
        self.answered = True
        if self._number:
            self._mailbox.unanswered.discard(self._number)
            told = Publication("", call_text(self._mailbox.name, self._number), raw, type, self._digest)
            publications_of(loop).add(told, loop.runs)

    def _encoded(self, answer: object) -> bytes:
        return payload.encode(answer, what=f"the answer to the call {self._mailbox.name!r}")


def value_type(type: Any) -> tuple[Any] | None:
    """The type of the value, if a call is wanted."""
    if type is Call:
        return (Any,)
    if get_origin(type) is not Call:
        return None
    (of_value,) = get_args(type)
    return (of_value,)
