"""A pact: the one transaction that a step's effect and its result share; here is how that result is known again."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import DecodeError, Struct, json

from perdure.kernel.message import Message, MessageType


class _Sender(Struct, omit_defaults=True):
    """What the message's sender says: where in the code the step was asked for."""

    origin: str = ""
    place: str = ""


ORIGIN = "step"

_decode = json.Decoder(_Sender).decode


def result_id(key: str) -> bytes:
    """The id of the message with the result of the step that has this idempotency key: all attempts share it."""
    return blake2b(key.encode(), digest_size=16, person=b"pact").digest()


def result(key: str, process: bytes, name: str, place: str, payload: bytes) -> Message:
    """The message with which a step gives its result to its own process, in the transaction of its effect."""
    sender = json.encode(_Sender(ORIGIN, place))
    return Message(result_id(key), process, MessageType.RESULT, name, payload, sender=sender)


def slot_of(message: Message) -> tuple[str, str] | None:
    """Name and place of the step that gave this result, or None if it is the answer of a child."""
    if message.sender is None or message.type is not MessageType.RESULT:
        return None
    try:
        sender = _decode(message.sender)
    except DecodeError:
        return None
    return (message.name, sender.place) if sender.origin == ORIGIN else None
