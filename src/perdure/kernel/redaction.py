"""A redaction: values of an archived process are replaced before its line is written, but keep their shape.

Texts become ``redacted`` and numbers 0, so that the values still fit the types that the code reads them with: a
redacted process can be rehearsed. A step's arguments may come from such values, and a repair's too: their digests are
left out, and those that are kept are replaced whatever part is named. Names, keys, and who gave which command and why,
stay.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from msgspec import Raw, json
from msgspec.structs import replace

from perdure.errors import InvalidInput
from perdure.kernel import context, stored
from perdure.kernel.archive import BASE64, ArchivedRecord, StoredEvent, StoredMessage, StoredProcess
from perdure.kernel.archive import value as archived
from perdure.kernel.checkpoint import MARK
from perdure.kernel.child import ORDERS, is_task
from perdure.kernel.event import EventType
from perdure.kernel.message import MessageType
from perdure.kernel.names import near

TEXT = "redacted"
"""What stands for each text."""
PARTS = ("attributes", "error", "events", "input", "messages", "progress", "result", "state")
"""What can be redacted: columns of the process, the values and errors in its events, and what its messages hold."""

Redact: TypeAlias = Callable[[str, Any], Any]
"""A redaction in code: given the part's name and a value of it, it returns the value to be written."""
_NOWHERE: Any = object()
"""What stands for a value in which nothing has the name that was looked for."""


def checked(parts: Iterable[str]) -> tuple[str, ...]:
    """The parts, as ``attributes.card`` or ``input``; raises InvalidInput for one that there is not."""
    named = tuple(part.strip() for part in parts)
    for part in named:
        first, _, rest = part.partition(".")
        if first not in PARTS or (rest and first in ("events", "messages")):
            raise InvalidInput(
                f"{part!r} cannot be redacted.{near(first, PARTS)} Name one of {', '.join(PARTS)}, or what is in one: "
                "attributes.card, input.0.card"
            )
    return named


def redacted(record: ArchivedRecord, parts: tuple[str, ...], redact: Redact | None = None) -> ArchivedRecord:
    """The record with these parts replaced, by ``redact`` if it is given; the line names the parts."""
    if not parts:
        return record
    one = _Redaction(parts, redact)
    events = [one.event(event) for event in record.events]
    former = {run: [one.event(event) for event in old] for run, old in record.former.items()}
    messages = [one.message(message) for message in record.messages]
    return ArchivedRecord(one.process(record.process), events, messages, list(parts), former)


class _Redaction:
    """What is replaced in one record: ``parts`` as they were given, ``named`` without their fields."""

    def __init__(self, parts: tuple[str, ...], redact: Redact | None) -> None:
        self.parts = parts
        self.named = frozenset(part.partition(".")[0] for part in parts)
        self.redact = redact
        whole = f"attributes.{context.ATTRIBUTE}"
        self.contexts = any(part in ("attributes", "messages") or f"{part}.".startswith(f"{whole}.") for part in parts)

    def process(self, row: StoredProcess) -> StoredProcess:
        """The row with these parts replaced."""
        changes: dict[str, Any] = {}
        for part in self.parts:
            name, *path = part.split(".")
            if name in ("events", "messages", "state"):
                continue
            raw = changes.get(name, getattr(row, name))
            if name == "input":
                changes[name] = _changed(raw, partial(self._input, path=path, task=is_task(row.kind)))
            elif name == "error" and not path and self.redact is None:
                changes[name] = _texts_of(raw, _OF_AN_ERROR)
            else:
                changes[name] = self._replaced(raw, name, path)
        return replace(row, **changes, state=_changed(row.state, self._state))

    def event(self, event: StoredEvent) -> StoredEvent:
        """The event without what it would tell of these parts; what the engine reads of its own records stays."""
        payload, type = event.payload, event.type
        if type == EventType.ARGUMENTS_KEPT:
            payload = _changed(payload, self._arguments)
        elif type == EventType.REPAIRED:
            payload = _changed(payload, self._repair)
        elif type in _VALUES:
            if "events" in self.named:
                payload = self._replaced(payload, "events", [])
        elif type == EventType.ATTRIBUTES_SET:
            if "attributes" in self.named:
                payload = _changed(payload, blank)
        elif type in _TEXTS:
            of, fields = _TEXTS[type]
            if not self.named.isdisjoint(of):
                payload = _texts_of(payload, fields)
        elif type not in _WITHOUT_VALUES:
            payload = _changed(payload, blank)  # of a later Perdure: nobody here knows what it tells
        return replace(event, payload=payload, digest=None)

    def message(self, message: StoredMessage) -> StoredMessage:
        """The message without what it would tell of these parts. An answer stands for an event's value or error."""
        payload, type, named = message.payload, message.type, self.named
        answers = _ANSWERS.get(type, ())
        if type in ORDERS:
            pass  # it says who gives it and why
        elif answers and not (self.redact is not None and "messages" in named):
            if not named.isdisjoint(answers):
                payload = _texts_of(payload, _OF_AN_ERROR)
        elif "messages" in named:
            payload = self._replaced(payload, "messages", [])
        elif type == MessageType.RESULT and "events" in named:
            payload = self._replaced(payload, "events", [])
        return replace(message, payload=payload, sender=_changed(message.sender, self._sender))

    def _replaced(self, raw: Raw, part: str, path: list[str]) -> Raw:
        return _changed(raw, partial(self._found, part=part, path=path))

    def _found(self, value: Any, part: str, path: list[str]) -> Any:
        """The value of a part with what the path names in it replaced."""
        after = (_in_steps if part == "progress" and path else _within)(value, part, path, self.redact)
        return value if after is _NOWHERE else after

    def _input(self, value: Any, path: list[str], *, task: bool) -> Any:
        """The input with what the path names replaced: all of it if nothing is found, since names are not stored."""
        if not path:
            return self._found(value, "input", path)
        if task and isinstance(value, dict) and "call" in value:  # all else there is the engine's own
            after = _in_arguments(value["call"], "input", path, self.redact)
            return value | {"call": blank(value["call"]) if after is _NOWHERE else after}
        after = _in_arguments(value, "input", path, self.redact)
        return blank(value) if after is _NOWHERE else after

    def _arguments(self, value: Any) -> Any:
        """Arguments may come from any of these parts."""
        return _at(value, "events", [], self.redact if "events" in self.named else None)

    def _repair(self, told: Any) -> Any:
        if not isinstance(told, dict) or "arguments" not in told:
            return told
        return told | {"arguments": self._arguments(told["arguments"])}

    def _state(self, state: Any) -> Any:
        """The state; where a machine stands is the engine's own, and no part of what a function is given."""
        stands = state.get(MARK) if isinstance(state, dict) else None
        fields = state if stands is None else {name: value for name, value in state.items() if name != MARK}
        for part in self.parts:
            name, *path = part.split(".")
            if name == "state":
                fields = self._found(fields, name, path)
        return {MARK: self._stands(stands), **fields} if stands is not None and isinstance(fields, dict) else fields

    def _stands(self, stands: dict[str, Any]) -> dict[str, Any]:
        """Where a machine stands, without the arguments of a repair that is to come, and the context of its timer."""
        if isinstance(repair := stands.get("repair"), dict) and "call" in repair:
            stands = stands | {"repair": repair | {"call": self._arguments(repair["call"])}}
        if context.FIELD in stands and (self.contexts or "state" in self.parts):
            stands = stands | {context.FIELD: _of_a_context(stands[context.FIELD])}
        return stands

    def _sender(self, sender: Any) -> Any:
        """The sender of a message without the digest of its step's arguments; its context counts as the message's."""
        if not isinstance(sender, dict):
            return sender
        if "digest" in sender:
            sender = {name: value for name, value in sender.items() if name != "digest"}
        if context.FIELD in sender and self.contexts:
            sender = sender | {context.FIELD: _of_a_context(sender[context.FIELD])}
        return sender


_OF_AN_ERROR = ("message", "trace")
"""What of a recorded error is text of the code; its class and its step stay."""
_VALUES = frozenset({EventType.STEP_COMPLETED, EventType.RESULT_KEPT, EventType.PUBLISHED, EventType.CALL_ANSWERED})
"""Events whose payload is a value of the code."""
_FAILURES = frozenset(
    {
        EventType.STEP_FAILED, EventType.ATTEMPT_FAILED, EventType.FAILED, EventType.CANCELLED, EventType.BROKEN,
        EventType.HELD, EventType.GIVEN_UP, EventType.CALL_REFUSED, EventType.RUN_RETRIED, EventType.TERMINATED,
        EventType.EXPIRED,
    }
)  # fmt: skip
"""Events whose payload tells an error, or may tell one."""
_TEXTS: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(_FAILURES, (("events", "error"), _OF_AN_ERROR)),
    EventType.REVIVED: (("events", "error"), ("stack",)),
    EventType.RUN_OPENED: (("input",), ("input",)),
    EventType.FIELDS_EDITED: (("state",), ("fields", "was")),
    EventType.ATTRIBUTES_EDITED: (("attributes",), ("attributes", "was")),
}
"""Events that are the engine's own records: the parts of which they may tell, and the fields that do."""
_WITHOUT_VALUES = frozenset(
    {
        EventType.TIMER_FIRED, EventType.MESSAGE_RECEIVED, EventType.RESUMED, EventType.CHILD_STARTED,
        EventType.ANSWER_IGNORED, EventType.SIGNAL_SENT, EventType.UNDO_OWED, EventType.PATCHED, EventType.SET_BY_HAND,
        EventType.SKIPPED, EventType.DEADLINE_SET, EventType.COMPLETED, EventType.KEY_RELEASED, EventType.TIMER_CHANGED,
        EventType.ATTEMPT_BEGUN, EventType.VERSION_MOVED, EventType.PRIORITY_SET, EventType.LOOK_CUT_SHORT,
    }
)  # fmt: skip
"""Events in which no value of the code stands."""
_ANSWERS: Mapping[int, tuple[str, ...]] = {
    MessageType.FAILURE: ("events", "error", "messages"), MessageType.CANCELLED: ("events", "error", "messages"),
}  # fmt: skip
"""Messages that tell an error, and the parts to which it belongs."""


def _changed(raw: Raw, change: Callable[[Any], Any]) -> Raw:
    """A payload in a line with its value changed; a sealed one stays as it is, and a damaged one is replaced whole."""
    text = bytes(raw)
    if not text:
        return raw
    if text.startswith(BASE64):
        text = b64decode(json.decode(text)["$base64"])
        if text.startswith(stored.MARK):
            return raw
    try:
        value = json.decode(text)
    except stored.MALFORMED:
        return archived(json.encode(TEXT))
    changed = change(value)
    return raw if changed is value else archived(json.encode(changed))


def _texts_of(raw: Raw, fields: tuple[str, ...]) -> Raw:
    """One of the engine's own records, with the values of these fields replaced, however deep they stand."""
    return _changed(raw, partial(_without, fields=fields))


def _without(value: Any, fields: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: blank(one) if name in fields else _without(one, fields) for name, one in value.items()}


def _at(value: Any, part: str, path: list[str], redact: Redact | None) -> Any:
    """The value with what the path names in it replaced; ``_NOWHERE`` if that is not in it."""
    if not path:
        return redact(part, value) if redact is not None else _blank_part(part, value)
    if isinstance(value, list):
        return _in_list(value, part, path, redact)
    return _in_object(value, part, path, redact) if isinstance(value, dict) else _NOWHERE


def _within(value: Any, part: str, path: list[str], redact: Redact | None) -> Any:
    """The same, but only an object can lack what the path names: all else has no names, and is replaced whole."""
    after = _at(value, part, path, redact)
    if after is not _NOWHERE or isinstance(value, dict):
        return after
    whole = _blank_part(part, value)
    return _NOWHERE if whole == value else whole


def _in_object(value: dict[str, Any], part: str, path: list[str], redact: Redact | None) -> Any:
    """A name may hold dots itself: whatever the path can mean is replaced."""
    names = {".".join(path[:end]): path[end:] for end in range(1, len(path) + 1)}
    after = {
        name: _within(value[name], f"{part}.{name}", rest, redact) for name, rest in names.items() if name in value
    }
    found = {name: one for name, one in after.items() if one is not _NOWHERE}
    return {**value, **found} if found else _NOWHERE


def _in_list(value: list[Any], part: str, path: list[str], redact: Redact | None) -> Any:
    """A number is a place in the list; any other name stands in its items."""
    first, *rest = path
    if not (first.isdecimal() and int(first) < len(value)):
        return _in_each(value, part, [path], redact)
    place = int(first)
    after = _within(value[place], f"{part}.{first}", rest, redact)
    return _NOWHERE if after is _NOWHERE else [*value[:place], after, *value[place + 1 :]]


def _in_each(value: list[Any], part: str, paths: list[list[str]], redact: Redact | None) -> Any:
    """The list with what any of the paths names in its items; items that have no names are then replaced whole."""
    items, found = list[Any](), False
    for number, item in enumerate(value):
        after, there = item, False
        for path in paths:
            one = _at(after, f"{part}.{number}", path, redact)
            if one is not _NOWHERE:
                after, there = one, True
        items.append(after if there or isinstance(item, dict) else blank(item))
        found = found or there
    return items if found else _NOWHERE


def _in_arguments(value: Any, part: str, path: list[str], redact: Redact | None) -> Any:
    """Arguments with what the path names replaced; ``_NOWHERE`` also if nobody knows which one it names.

    They stand in a list without their names: a path may begin with the name of any of them, or with that of a field.
    Those that can only be given by name stand in an object, which has the list under the empty name.
    """
    first, *rest = path
    placed, known = first.isdecimal(), isinstance(value, dict) and first in value
    if not (rest or placed or known):
        return _NOWHERE
    if isinstance(value, list):
        return _in_list(value, part, path, redact) if placed else _in_each(value, part, [path, rest], redact)
    if not isinstance(value, dict):
        return _NOWHERE
    listed = value.get("", [])
    found = {"": (_at if known else _in_arguments)(listed, part, path, redact)}
    for name, one in value.items():
        if name == first:
            found[name] = _within(one, f"{part}.{name}", rest, redact)
        elif name and not placed:
            found[name] = _at(one, f"{part}.{name}", path, redact)
    found = {name: one for name, one in found.items() if one is not _NOWHERE}
    return {**value, **found} if found else _NOWHERE


def _in_steps(value: Any, part: str, path: list[str], redact: Redact | None) -> Any:
    """What steps have reported, by their places (``charge:1``): a path may leave the place out."""
    after = _at(value, part, path, redact)
    if after is not _NOWHERE or not isinstance(value, dict):
        return after
    every = {place: _within(one, f"{part}.{place}", path, redact) for place, one in value.items()}
    return {place: value[place] if one is _NOWHERE else one for place, one in every.items()}


def _blank_part(part: str, value: Any) -> Any:
    """The value of a part replaced; among attributes stands a context, which is a text of JSON."""
    if part == f"attributes.{context.ATTRIBUTE}":
        return _of_a_context(value)
    if part == "attributes" and isinstance(value, dict) and context.ATTRIBUTE in value:
        return blank(value) | {context.ATTRIBUTE: _of_a_context(value[context.ATTRIBUTE])}
    return blank(value)


def _of_a_context(text: Any) -> Any:
    """The text of a context with its values replaced; one that is sealed is replaced whole."""
    if not isinstance(text, str) or not context.is_open(text):
        return blank(text)
    try:
        return json.encode(blank(json.decode(text))).decode()
    except stored.MALFORMED:
        return TEXT


def blank(value: Any) -> Any:
    """The value with each text and number in it replaced; names of fields stay."""
    if isinstance(value, str):
        return TEXT
    if isinstance(value, list):
        return [blank(one) for one in value]
    if isinstance(value, dict):
        return {name: blank(one) for name, one in value.items()}
    return value if isinstance(value, bool) or value is None else type(value)()
