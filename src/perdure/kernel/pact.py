"""A pact: the one transaction that a step's effect and its result share; here is how that result is known again."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct, json

from perdure.kernel.message import Message, MessageType
from perdure.kernel.recorded import MALFORMED

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
    """Where the result in a message comes from, or None if it is no step's own: the answer of a child."""
    if message.sender is None or message.type is not MessageType.RESULT:
        return None
    try:
        found = _decode(message.sender)
    except MALFORMED:
        return None
    return found if found.origin == _STEP else None
