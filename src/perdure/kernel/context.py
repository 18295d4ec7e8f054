"""A context: a small mapping that travels with a start, a call or a signal into everything that follows from it.

The engine does not look into it: it says whose request it is (a tenant) and to which trace that belongs (the W3C
``traceparent``). It is a JSON text. That of a process stands among the attributes of its row, as its reply address
does, so that every run and every release keeps it; that of a message stands in its sender.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field, json
from msgspec.structs import replace

from perdure import limits
from perdure.errors import InvalidInput, UnreadablePayload
from perdure.kernel.payload import encode
from perdure.kernel.plain import shown
from perdure.kernel.process import Process, merged
from perdure.kernel.stored import MALFORMED

ATTRIBUTE = "@context"
"""The name under which the context of a process stands among its attributes."""

FIELD = "context"
"""Its name in the sender of a message."""

_IN_ATTRIBUTES, _IN_SENDER = b'"@context":', b'"context":'


class _Row(Struct):
    text: str | None = field(default=None, name=ATTRIBUTE)


class _Sender(Struct):
    text: str | None = field(default=None, name=FIELD)


_decode_row, _decode_sender = json.Decoder(_Row).decode, json.Decoder(_Sender).decode


def checked(given: Any) -> str:
    """The text of a context that somebody gives; empty if it is empty. Raises InvalidInput, PayloadTooLarge."""
    if given is None:
        return ""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(f'context={shown(given)} is no context. Give a dict with names, like {{"tenant": "acme"}}.')
    return encode(dict(given), limit=limits.CONTEXT_BYTES, what="the context").decode() if given else ""


def carrying(process: Process, text: str | None) -> Process:
    """The row of a new process with its context; raises PayloadTooLarge if its own attributes leave no room."""
    return replace(process, attributes=merged(process.attributes, {ATTRIBUTE: text})) if text else process


def of_attributes(attributes: bytes | None) -> str | None:
    """The text of the context that stands among these attributes."""
    if attributes is None or _IN_ATTRIBUTES not in attributes:
        return None
    try:
        return _decode_row(attributes).text
    except MALFORMED:  # a damaged row has none: its process must be able to go on
        return None


def of_sender(sender: bytes | None) -> str | None:
    """The text of the context that came with a message."""
    if sender is None or _IN_SENDER not in sender:
        return None
    try:
        return _decode_sender(sender).text
    except MALFORMED:
        return None


def read(text: str | None) -> dict[str, Any]:
    """The context itself, which is empty if none was given; raises UnreadablePayload if it is sealed."""
    if not text:
        return {}
    try:
        return json.decode(text, type=dict[str, Any])
    except MALFORMED:
        raise UnreadablePayload("the context is sealed, and the codec that opens it is missing here") from None


def is_open(text: str) -> bool:
    """Whether a text is a context, and not a sealed one."""
    return text.startswith("{")


def with_text(raw: bytes, name: str, text: str) -> bytes:
    """These attributes, or this sender, with another text in the place of the context."""
    return json.encode({**json.decode(raw), name: text})
