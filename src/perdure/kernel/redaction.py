"""A redaction: values of an archived process are replaced before its line is written, but keep their shape.

Texts become ``redacted`` and numbers 0, so that the values still fit the types that the code reads them with: a
redacted process can be rehearsed. A step's arguments may come from such values: their digests are left out, and those
that are kept are replaced whatever part is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Raw, json
from msgspec.structs import replace

from perdure.errors import InvalidInput
from perdure.kernel.archive import BASE64, ArchivedRecord, StoredEvent
from perdure.kernel.checkpoint import MARK
from perdure.kernel.event import EventType
from perdure.kernel.names import near

TEXT = "redacted"
"""What stands for each text."""
PARTS = ("attributes", "error", "events", "input", "messages", "progress", "result", "state")
"""What can be redacted: columns of the process, the values and errors in its events, and what its messages hold."""

Redact: TypeAlias = Callable[[str, Any], Any]
"""A redaction in code: given the part's name and a value of it, it returns the value to be written."""


def checked(parts: Iterable[str]) -> tuple[str, ...]:
    """The parts, as ``attributes.card`` or ``input``; raises InvalidInput for one that there is not."""
    named = tuple(part.strip() for part in parts)
    for part in named:
        first, _, rest = part.partition(".")
        if first not in PARTS or (rest and first in ("events", "messages")):
            raise InvalidInput(
                f"{part!r} cannot be redacted.{near(first, PARTS)} Name one of {', '.join(PARTS)}, or a field of one "
                "that is a JSON object: attributes.card"
            )
    return named


def redacted(record: ArchivedRecord, parts: tuple[str, ...], redact: Redact | None = None) -> ArchivedRecord:
    """The record with these parts replaced, by ``redact`` if it is given; the line names what was replaced."""
    if not parts:
        return record
    changes: dict[str, Any] = {}
    for part in parts:
        name, *path = part.split(".")
        if name not in ("events", "messages"):
            raw = changes.get(name, getattr(record.process, name))
            whole = name == "error" and not path and redact is None
            changes[name] = _texts_of(raw, _OF_AN_ERROR) if whole else _replaced(raw, name, path, redact)
    messages = record.messages
    if "messages" in parts:
        messages = [replace(one, payload=_replaced(one.payload, "messages", [], redact)) for one in messages]
    events = [_event(one, parts, redact) for one in record.events]
    former = {run: [_event(one, parts, redact) for one in old] for run, old in record.former.items()}
    return ArchivedRecord(replace(record.process, **changes), events, messages, list(parts), former)


def _event(event: StoredEvent, parts: tuple[str, ...], redact: Redact | None) -> StoredEvent:
    """The event without what it would tell of these parts; what the engine reads of its own records stays."""
    payload, type = event.payload, event.type
    named = {part.partition(".")[0] for part in parts}
    if type == EventType.ARGUMENTS_KEPT:  # they too may come from any of these parts
        payload = _replaced(payload, "events", [], redact if "events" in named else None)
    elif type in _VALUES and "events" in named:
        payload = _replaced(payload, "events", [], redact)
    elif type in _FAILURES and not named.isdisjoint(("events", "error")):
        payload = _texts_of(payload, _OF_AN_ERROR)
    elif type in (EventType.ATTRIBUTES_SET, EventType.ATTRIBUTES_EDITED) and "attributes" in named:
        payload = _replaced(payload, "attributes", [], None)
    elif type == EventType.FIELDS_EDITED and "state" in named:
        payload = _replaced(payload, "state", [], None)
    elif type == EventType.RUN_OPENED and "input" in named and b'"input":' in bytes(payload):
        payload = _texts_of(payload, ("input",))
    return replace(event, payload=payload, digest=None)


_VALUES = frozenset({EventType.STEP_COMPLETED, EventType.RESULT_KEPT, EventType.PUBLISHED, EventType.CALL_ANSWERED})
"""Events whose payload is a value of the code."""
_FAILURES = frozenset(
    {
        EventType.STEP_FAILED, EventType.ATTEMPT_FAILED, EventType.FAILED, EventType.BROKEN, EventType.GIVEN_UP,
        EventType.CALL_REFUSED, EventType.RUN_RETRIED, EventType.TERMINATED, EventType.EXPIRED,
    }
)  # fmt: skip
"""Events whose payload tells an error."""
_OF_AN_ERROR = ("message", "trace")
"""What of a recorded error is text of the code; its class and its step stay."""


def _texts_of(raw: Raw, fields: tuple[str, ...]) -> Raw:
    """One of the engine's own records, with the values of these fields replaced, however deep they stand."""
    text = bytes(raw)
    return raw if not text or text.startswith(BASE64) else Raw(json.encode(_without(json.decode(text), fields)))


def _without(value: Any, fields: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: blank(one) if name in fields else _without(one, fields) for name, one in value.items()}


def _replaced(raw: Raw, part: str, path: list[str], redact: Redact | None) -> Raw:
    text = bytes(raw)
    if not text or text.startswith(BASE64):
        return raw
    return Raw(json.encode(_at(json.decode(text), part, path, redact)))


def _at(value: Any, part: str, path: list[str], redact: Redact | None) -> Any:
    if not path:
        return redact(part, value) if redact is not None else blank(value)
    first, *rest = path
    if isinstance(value, list) and first.isdecimal() and int(first) < len(value):
        place = int(first)
        return [*value[:place], _at(value[place], f"{part}.{first}", rest, redact), *value[place + 1 :]]
    if isinstance(value, Mapping) and first in value:
        return {**value, first: _at(value[first], f"{part}.{first}", rest, redact)}
    return value


def blank(value: Any) -> Any:
    """The value with each text and number in it replaced; names of fields stay."""
    if isinstance(value, str):
        return TEXT
    if isinstance(value, list):
        return [blank(one) for one in value]
    if isinstance(value, dict):  # where a machine stands is the engine's own
        return {name: one if name == MARK else blank(one) for name, one in value.items()}
    return value if isinstance(value, bool) or value is None else type(value)()
