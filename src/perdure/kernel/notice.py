"""A notice: a signal that tells a process's reply address what has become of the process, in the commit that did it.

The reply address is the id of another process, and stands among the attributes of the row, so that every commit knows
it without asking the store, and every release that writes the row keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from msgspec import Raw, Struct, field, json
from msgspec.structs import replace

from perdure.errors import InvalidInput, InvalidKey
from perdure.kernel import context
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import DEBOUNCED, id_bytes, id_text, is_debounced
from perdure.kernel.process import COMPLETED, FORMER_KEY, Process, Status, merged
from perdure.kernel.stored import MALFORMED

SIGNAL = "notice"
"""The name of the signal that a receiver awaits: ``await receive("notice", Notice)``."""

RECEIVED = "received"
"""The status in a process's first notice: its first commit has been made."""

ATTRIBUTE = "@reply_to"
"""The name under which the reply address stands among the attributes."""

_MARK = json.encode(ATTRIBUTE)


class Reason(Struct, frozen=True, omit_defaults=True):
    """Why a process has failed, was cancelled, is broken or held, as a notice tells it: without any stack trace."""

    type: str = ""
    message: str = ""


class Notice(Struct, frozen=True, omit_defaults=True):
    """What a receiver is told: ``status`` is ``received`` once the process has begun, then each status it changes to.

    ``id`` is the same if the notice is delivered twice. ``process``, ``kind`` and ``key`` say who tells, ``run`` in
    which of its runs. A ``result`` comes with ``completed``, an ``error`` with ``failed``, ``cancelled``, ``broken``
    and ``held``.
    """

    id: str
    status: str
    process: str
    kind: str
    run: int
    key: str | None = None
    result: Any = None
    error: Reason | None = None


class _Address(Struct):
    text: str | None = field(default=None, name=ATTRIBUTE)


_decode_address = json.Decoder(_Address).decode
_decode_reason = json.Decoder(Reason).decode


def address(process: Process) -> bytes | None:
    """The id of the process that gets the notices, or None."""
    attributes = process.attributes
    if attributes is None or _MARK not in attributes:
        return None
    try:
        text = _decode_address(attributes).text
        return None if text is None else id_bytes(text)
    except (*MALFORMED, InvalidKey):  # a damaged row tells nobody: its process must be able to end
        return None


def addressed(process: Process, receiver: bytes) -> Process:
    """The row of a new process with its reply address; raises PayloadTooLarge if its own attributes leave no room."""
    return replace(process, attributes=merged(process.attributes, {ATTRIBUTE: id_text(receiver)}))


def unaddressed(attributes: bytes | None) -> bytes | None:
    """The attributes of a row without the reply address."""
    return attributes if attributes is None or _MARK not in attributes else merged(attributes, {ATTRIBUTE: None})


def refuse_reserved(attributes: Mapping[str, Any]) -> None:
    """Raise InvalidInput if somebody's own attributes would set a reply address, a context or a former key."""
    if ATTRIBUTE in attributes:
        raise InvalidInput(f"{ATTRIBUTE!r} is the attribute of reply addresses. Give reply_to= at the start instead.")
    if context.ATTRIBUTE in attributes:
        raise InvalidInput(f"{context.ATTRIBUTE!r} is the attribute of contexts. Give context= at the start instead.")
    if FORMER_KEY in attributes:
        raise InvalidInput(f"{FORMER_KEY!r} is the attribute of keys that were released. Give another name.")


def notices(before: Process, after: Process) -> tuple[Message, ...]:
    """What a commit that changes ``before`` to ``after`` tells the reply address.

    ``received`` is told by every commit until a history has begun: all carry one id, of which an inbox takes one. The
    process of a debounced start begins with the commit by which it gives its key back, or has ended without: until then
    it may get another reply address.
    """
    receiver = address(before)
    if receiver is None:
        return ()
    told: list[Message] = []
    begins = before.events == 0 and before.run == 1
    if is_debounced(before.key):
        begins = after.key is None or after.final
    if begins:
        told.append(_message(after, receiver, RECEIVED, _id(after, RECEIVED), before.key))
    if after.status is not before.status:
        told.append(_message(after, receiver, after.status.value, _id(after, after.version), before.key))
    return tuple(told)


def ids(after: Process) -> frozenset[bytes]:
    """The ids of the notices that the commit to this row can carry."""
    return frozenset((_id(after, RECEIVED), _id(after, after.version)))


def _id(process: Process, what: str | int) -> bytes:
    return blake2b(str(what).encode(), digest_size=16, key=process.id, person=b"notice").digest()


def _message(process: Process, receiver: bytes, status: str, id: bytes, key: str | None) -> Message:
    key = None if key is None else str(key).removeprefix(DEBOUNCED)
    sender, kind = id_text(process.id), str(process.kind)
    result = error = None
    if status == COMPLETED:
        result = Raw(process.result or b"null")
    elif status != RECEIVED and process.status is not Status.RUNNING:
        error = _reason(process.error)
    notice = Notice(id_text(id), status, sender, kind, process.run, key, result, error)
    told_by = json.encode({"who": f"process {sender}", "origin": SIGNAL})
    return Message(id, receiver, MessageType.SIGNAL, SIGNAL, json.encode(notice), sender=told_by)


def _reason(raw: bytes | None) -> Reason | None:
    try:
        return None if raw is None else _decode_reason(raw)
    except MALFORMED:
        return None
