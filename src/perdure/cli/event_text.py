"""One event of a history, told in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.cli import text
from perdure.client.view import instant
from perdure.errors import PerdureError
from perdure.kernel.adjust import Adjusted
from perdure.kernel.checkpoint import timer_change
from perdure.kernel.context import of_sender
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import LETTERS, Message
from perdure.kernel.retry import FailedAttempt, decode_attempt
from perdure.kernel.run import CONTINUED, EDITED, TRIED_AGAIN, opening_of
from perdure.kernel.stored import MALFORMED, why_undecodable
from perdure.kernel.undo import undoes

_CUT = 300


def what(event: Event) -> str:
    """What happened, and to which step, timer or message."""
    kind = event.type.name.lower().replace("_", " ")
    return text.cut(f"{kind}: {event.name}", _CUT) if event.name and event.name != "timer" else kind


def detail(event: Event, letters: Mapping[int, Message], limit: int = _CUT) -> str:
    """The content of the event, in at most ``limit`` bytes; ``letters`` are the messages by number."""
    step = undoes(event.place)
    if step is not None:
        verb = "for" if event.type is EventType.UNDO_OWED else "undoes"
        return f"{text.cut(f'{verb} {step}', limit)}  {_detail(event, letters, limit)}".rstrip()
    return _detail(event, letters, limit)


def _detail(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    try:
        return text.cut(_TOLD.get(event.type, _nothing)(event, letters, limit), 2 * limit)
    except Exception:  # another version, or another program, wrote it: show what is there
        return text.payload(event.payload, limit)


def attempt(event: Event) -> FailedAttempt | None:
    """The failed attempt that the event records; None if it records none that can be read."""
    try:
        return decode_attempt(event.payload or b"")
    except PerdureError:
        return None


def trace(event: Event, letters: Mapping[int, Message]) -> str:
    """The stack trace of the failure that the event records; empty if it records none."""
    if event.type in (EventType.ATTEMPT_FAILED, EventType.RUN_RETRIED):
        tried = attempt(event)
        return "" if tried is None else tried.failure.trace.rstrip()
    raw = _given(event, letters)
    if event.type not in _FAILURES or raw is None:
        return ""
    try:
        return Failure.decode(raw).trace.rstrip()
    except PerdureError:
        return ""


def as_json(event: Event, letters: Mapping[int, Message]) -> dict[str, Any]:
    """The event as plain values."""
    letter = None if event.message is None else letters.get(event.message)
    shown: dict[str, Any] = {
        "number": event.number,
        "turn": event.turn,
        "type": event.type.name.lower(),
        "at": instant(event.at),
        "place": event.place,
        "name": event.name,
        "payload": _json_or_text(_given(event, letters)),
        "token": event.token,
        "version": event.version,
    }
    if event.message is not None:
        shown["message"] = event.message
    if letter is not None and letter.sender is not None:
        shown["sender"] = _json_or_text(letter.sender)
    return shown


def sender(raw: bytes | Mapping[str, str] | None) -> str:
    """Who sent something and why, as far as it was recorded."""
    told: Mapping[str, str] = msgspec.json.decode(raw) if isinstance(raw, bytes) else raw or {}
    who = f"by {told['who']}" if told.get("who") else ""
    why = f"because: {told['why']}" if told.get("why") else ""
    return " ".join(part for part in (who, why) if part)


def _nothing(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    return ""


def _answered(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    raw = _given(event, letters)
    return "" if raw == b"null" else text.payload(raw, limit)


def _given(event: Event, letters: Mapping[int, Message]) -> bytes | None:
    """The payload of the event, or of the message that it records."""
    letter = letters.get(event.message or 0)
    return event.payload if letter is None else letter.payload


def _failed(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    raw = _given(event, letters)
    if raw is None:
        return ""
    failed = Failure.decode(raw)
    tries = f"after {failed.attempts} attempts: " if failed.attempts > 1 else ""
    return tries + text.failure(failed, limit)


def _tried(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    tried = decode_attempt(event.payload or b"{}")
    again = f"the next one {text.span((tried.retry_at - event.at) / 1_000_000)} later"
    if tried.breaks:
        again = "a person must let it be tried again"
    return f"attempt {tried.attempt}: {text.failure(tried.failure, limit)} ({again})"


def _received(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    letter = letters.get(event.message or 0)
    if letter is None:
        return f"message {event.message}"
    content = text.payload(letter.payload, limit) if letter.type in LETTERS else ""
    context = of_sender(letter.sender)
    given = "" if context is None else f"with the context {text.cut(context, limit)}"
    return " ".join(part for part in (content, given, sender(letter.sender)) if part)


def _revived(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    told = msgspec.json.decode(event.payload or b"{}")
    by = f"; revived by {told['by']} ({told['sweep']})" if "by" in told else ""
    return _loss(told) + by


def _loss(told: dict[str, Any]) -> str:
    if told.get("died"):
        name = told["worker"].partition(" ")[0]
        if told.get("waited"):
            return f"worker {name} died while it only waited there; this does not count against it"
        company = told.get("company", 0)
        how = (
            ""
            if not company
            else ": a suspect, runs alone"
            if company == 1
            else f": a suspect, one of {company} at most"
        )
        return f"worker {name} died with it in hand ({told['deaths'] + told['alone_deaths']} so far{how})"
    return f"worker {told['worker']} lost it: the worker was silent, or its lease ended"


def _opened(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    told = opening_of((event,))
    if told.done == TRIED_AGAIN:
        return f"{told.done} after run {told.from_run} has failed"
    if told.done == CONTINUED:
        return f"{told.done} from run {told.from_run}, with {text.payload(bytes(told.input), limit)}"
    before = f"process {told.forked}, run {told.from_run}" if told.forked else f"run {told.from_run}"
    kept = f"{told.done} from {before}, with {told.kept or 'none'} of its events"
    if told.done == EDITED:
        kept = f"{told.done} after {before}, {text.payload(bytes(told.input), limit)}"
    left = f"not undone: {', '.join(told.not_undone)}" if told.not_undone else ""
    return "; ".join(part for part in (f"{kept} {sender(told.sender)}".rstrip(), left) if part)


def _held(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    by_a_limit = b'"type"' in (event.payload or b"")
    return _failed(event, letters, limit) if by_a_limit else sender(event.payload)


def _adjusted(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    told = msgspec.json.decode(event.payload or b"{}", type=Adjusted)
    return f"{told.was!r} becomes {told.to!r} {sender(event.payload)}".rstrip()


def _bounded(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    until = msgspec.json.decode(event.payload or b"{}").get("until")
    if until is None:  # a person has set it by itself, and not with a request to cancel
        told = msgspec.json.decode(event.payload or b"{}", type=Adjusted)
        was, to = (at if at is None else _away(int(at), event) for at in (told.was, told.to))
        return f"{was or 'none'} becomes {to or 'none'} {sender(event.payload)}".rstrip()
    return f"to end within {text.span((until - event.at) / 1_000_000)} {sender(event.payload)}"


def _timer_changed(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    told = timer_change(event.payload or b"{}")
    was = f"{_NOUN[told.removal_was]} due {_away(told.was, event)}"
    if told.to is None:
        return f"{was}: cancelled"
    return f"{was}: replaced by {_NOUN[told.removal]} due {_away(told.to, event)}"


_NOUN = {False: "timer", True: "removal"}


def _away(instant: int, event: Event) -> str:
    """A time as people see it, from the event on."""
    return "now" if instant <= event.at else f"{text.span((instant - event.at) / 1_000_000)} later"


def _key_released(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    key = msgspec.json.decode(event.payload or b"{}", type=dict[str, str])["key"]
    return f"{key} {sender(event.payload)}".rstrip()


def _commanded(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    return sender(event.payload)


def _repaired(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    arguments = msgspec.json.decode(event.payload or b"{}", type=dict[str, msgspec.Raw])["arguments"]
    return f"with {text.payload(bytes(arguments), limit)} {sender(event.payload)}".rstrip()


def _edited(event: Event, letters: Mapping[int, Message], limit: int) -> str:
    told = msgspec.json.decode(event.payload or b"{}", type=dict[str, msgspec.Raw])
    values = msgspec.json.decode(told.get("fields") or told["attributes"], type=dict[str, msgspec.Raw])
    was = msgspec.json.decode(told["was"], type=dict[str, msgspec.Raw])
    shown = (
        f"{name}: {text.payload(bytes(was[name]), limit) if name in was else 'new'} becomes "
        f"{text.payload(bytes(value), limit)}"
        for name, value in values.items()
    )
    return f"{', '.join(shown)} {sender(event.payload)}".rstrip()


_FAILURES = frozenset(
    {
        EventType.STEP_FAILED, EventType.CALL_REFUSED, EventType.FAILED, EventType.CANCELLED, EventType.BROKEN,
        EventType.EXPIRED, EventType.HELD,
    }
)  # fmt: skip
_TOLD = {
    EventType.STEP_COMPLETED: _answered,
    EventType.STEP_FAILED: _failed,
    EventType.ATTEMPT_FAILED: _tried,
    EventType.RUN_RETRIED: _tried,
    EventType.MESSAGE_RECEIVED: _received,
    EventType.REVIVED: _revived,
    EventType.RUN_OPENED: _opened,
    EventType.RESUMED: _commanded,
    EventType.TERMINATED: _commanded,
    EventType.GIVEN_UP: _commanded,
    EventType.REPAIRED: _repaired,
    EventType.HELD: _held,
    EventType.RESULT_KEPT: _answered,
    EventType.ARGUMENTS_KEPT: _answered,
    EventType.PUBLISHED: _answered,
    EventType.ATTRIBUTES_SET: _answered,
    EventType.CALL_ANSWERED: _answered,
    EventType.CALL_REFUSED: _failed,
    EventType.SET_BY_HAND: _commanded,
    EventType.SKIPPED: _commanded,
    EventType.DEADLINE_SET: _bounded,
    EventType.FAILED: _failed,
    EventType.CANCELLED: _failed,
    EventType.BROKEN: _failed,
    EventType.EXPIRED: _failed,
    EventType.KEY_RELEASED: _key_released,
    EventType.TIMER_CHANGED: _timer_changed,
    EventType.FIELDS_EDITED: _edited,
    EventType.ATTRIBUTES_EDITED: _edited,
    EventType.VERSION_MOVED: _adjusted,
    EventType.PRIORITY_SET: _adjusted,
}


def _json_or_text(raw: bytes | None) -> Any:
    if raw is None:
        return None
    why = why_undecodable(raw)
    if why is not None:
        return {"unreadable": str(why)}
    try:
        return msgspec.json.decode(raw)
    except MALFORMED:
        return raw.decode(errors="backslashreplace")
