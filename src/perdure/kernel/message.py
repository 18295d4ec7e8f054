"""A message: something sent to a process, which waits in its inbox under a number of its own.

The result of a transactional step is a message too: the step's own transaction sends it, and its id is made from the
step's idempotency key, so that a second one is recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct, json

from perdure.kernel.event import Event
from perdure.kernel.stored import MALFORMED


class MessageType(IntEnum):
    """What a message asks of the process that gets it; results, failures and cancellations are a child's answer.

    ``TERMINATE`` is heard by the worker, not by the code: nothing more runs. A ``CALL`` is a signal whose sender waits
    for an answer.
    """

    SIGNAL = 1
    CANCEL = 2
    RESULT = 3
    FAILURE = 4
    CANCELLED = 5
    TERMINATE = 6
    CALL = 7


LETTERS = frozenset({MessageType.SIGNAL, MessageType.CALL})
"""The messages that the code receives when it asks for them; all others are heard as soon as they arrive."""


class Message(Struct, frozen=True, gc=False):
    """One row of the table ``message``; its key is (process, number).

    ``id`` is made by the sender, so that a resend is recognised. ``key`` is the sender's own de-duplication key,
    unique per process. ``sender`` is JSON: who, why, origin. ``number`` and ``at`` are given by the store.
    """

    id: bytes
    process: bytes
    type: MessageType
    name: str = ""
    payload: bytes = b"null"
    key: str | None = None
    sender: bytes | None = None
    number: int = 0
    at: int = 0
    consumed_run: int | None = None
    consumed_by: int | None = None


class LettersWanted(Struct, frozen=True, gc=False):
    """A query for the letters of one name that a process has heard and its code has not received.

    Their numbers are above ``after`` and at most ``upto``; at most ``most`` of them are wanted. ``seen`` is the row's:
    the store has not marked letters above it yet, only the owner knows that it has heard them.
    """

    process: bytes
    name: str
    after: int
    seen: int
    upto: int
    most: int


def call_text(name: str, number: int) -> str:
    """The name of a call's answer: ``quote:7``, the call's name and its number in the inbox."""
    return f"{name}:{number}"


def call_key(name: str, key: str) -> str:
    """The de-duplication key of a call: no signal, and no call of another name, can have the same."""
    return f"{name}\n{key}"


class SendVerdict(StrEnum):
    """What became of a send. After ``BUSY`` alone the runtime tries again, by itself.

    ``FULL``: the inbox was full, so nothing was put into it.
    """

    DELIVERED = "delivered"
    DUPLICATE = "duplicate"
    FINISHED = "finished"
    NOT_FOUND = "not found"
    BUSY = "busy"
    FULL = "full"


DELIVERED = SendVerdict.DELIVERED


class SendAnswer(Struct, frozen=True, gc=False):
    """The answer to one send: ``number`` is the message's inbox number, ``process`` the id it went to.

    A message to a finished process is recorded and answered ``FINISHED``. ``owner`` is the worker that holds
    the process now, if any.
    """

    verdict: SendVerdict
    process: bytes = b""
    number: int = 0
    owner: bytes | None = None
    now: int = 0


class Written(NamedTuple):
    """What was written by the commit that brought a letter: its ``number``, and the events of its turn."""

    number: int
    events: Sequence[Event]


OnBrought = Callable[[Written | None], None]
"""Called when the commit that brings a letter was answered: None if it was not written, and the letter must be sent."""

_STEP = "step"


class Origin(Struct, frozen=True, omit_defaults=True):
    """Where a result comes from: the place in the code that asked for its step, and the digest of the arguments."""

    origin: str = ""
    place: str = ""
    digest: str = ""


_decode = json.Decoder(Origin).decode


def result_id(key: str) -> bytes:
    """The id of the message with the result of the step that has this idempotency key: all attempts share it."""
    return blake2b(key.encode(), digest_size=16, person=b"pact").digest()


def result(key: str, process: bytes, name: str, place: str, digest: bytes, payload: bytes) -> Message:
    """The message with which a step gives its result to its own process, in the transaction of its effect."""
    sender = json.encode(Origin(_STEP, place, digest.hex()))
    return Message(result_id(key), process, MessageType.RESULT, name, payload, sender=sender)


def origin_of(message: Message) -> Origin | None:
    """Where the result in a message comes from; None if it is not a step's own but the answer of a child."""
    if message.sender is None or message.type is not MessageType.RESULT:
        return None
    try:
        found = _decode(message.sender)
    except MALFORMED:
        return None
    return found if found.origin == _STEP else None
