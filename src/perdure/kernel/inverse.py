"""An inverse: what takes back a command, as long as nothing has happened since; and why others cannot be taken back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, json

from perdure.errors import IllegalMove
from perdure.kernel import adjust, command
from perdure.kernel.commit import Commit
from perdure.kernel.edit import with_attributes, with_fields, with_input
from perdure.kernel.event import Event, EventType
from perdure.kernel.patch import SAYS_NOTHING_OF_TURNS
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.stored import MALFORMED
from perdure.kernel.transition import Sender
from perdure.kernel.worker import Pair

_GONE_ON = "it has gone on since; hold, restart or terminate it"
_NO_INVERSE: Mapping[str, str] = {
    "retry": _GONE_ON,
    "restart": _GONE_ON,
    "restart-from": _GONE_ON,
    "repair": _GONE_ON,
    "set-result": "its code has gone on with the result; `restart-from` the step takes it back",
    "skip": "its code has gone on without the step; `restart-from` the step runs it",
    "cancel": "its code has heard it; `restart` begins it again once it has ended",
    "terminate": "it has ended; `restart` begins it again",
    "fail": "it has ended; `retry` lets it go on from its last good event",
    "remove": "nothing of it is left",
}
"""Why a command has no inverse, and what can be done instead."""
HAVE_INVERSE = frozenset(
    {"hold", "resume", "edit-fields", "edit-attributes", "edit-input", "move", "set-priority", "set-deadline"}
)


class _Edited(Struct):
    """What an edit of fields has replaced."""

    was: dict[str, Raw] = {}


class _EditedAttributes(Struct):
    """What an edit of attributes has replaced, None for a name that was not there."""

    was: dict[str, Any] = {}


def ordered_by(event: Event, origin: str) -> bool:
    """Whether an event is a command that came from there (``operation ID``)."""
    return sent_by(event.payload, origin)


def sent_by(raw: bytes | None, origin: str) -> bool:
    """Whether what an event or a message tells of its sender names that origin."""
    try:
        told = json.decode(raw or b"{}")
    except MALFORMED:
        return False
    sender = told.get("sender", told) if isinstance(told, dict) else {}
    return isinstance(sender, dict) and sender.get("origin") == origin


def no_inverse(verb: str) -> str:
    """Why what the verb has done cannot be taken back; empty if it perhaps can."""
    return "" if verb in HAVE_INVERSE else _NO_INVERSE.get(verb, "what it did cannot be taken back")


def taken_back(
    process: Process,
    history: Sequence[Event],
    verb: str,
    origin: str,
    sender: Sender,
    *,
    now: int,
    idle_at: int,
    input: bytes = b"",
    hosted: Collection[Pair] | None = None,
) -> Commit:
    """Take back the command ``verb`` that came from ``origin``; raises IllegalMove, which says why not.

    ``input`` is what the process had before its input was edited. An edit, and a resumption, can be taken back only if
    nothing has happened since; a hold as long as that hold lasts; a priority and a deadline as long as nobody has set
    another one. A move can be taken back if the other code has recorded nothing, also if the process broke by it;
    ``hosted`` are the versions that live workers host.
    """
    if why := no_inverse(verb):
        raise IllegalMove(why)
    copied = opening_of(history).kept
    own = history[copied + 1 :] if copied else history
    mine = next((event for event in reversed(own) if ordered_by(event, origin)), None)
    if mine is None:
        raise IllegalMove("the operation has not commanded it in its present run")
    if verb == "hold":
        later = any(event.type is EventType.HELD for event in history if event.number > mine.number)
        if process.status is not Status.HELD or later:
            raise IllegalMove(f"it is {process.status} since, by another command")
        return command.resumed(process, sender, now=now)
    if verb in ("move", "set-priority", "set-deadline"):
        return _adjusted_back(process, history, mine, sender, now, hosted)
    if process.events != mine.number:
        raise IllegalMove(_GONE_ON)
    if verb == "resume":
        return command.held(process, sender, now=now, idle_at=idle_at)
    if verb == "edit-fields":
        return with_fields(process, json.decode(mine.payload or b"", type=_Edited).was, sender, now=now)
    if verb == "edit-attributes":
        was = json.decode(mine.payload or b"", type=_EditedAttributes).was
        return with_attributes(process, history, was, sender, now=now)
    if process.opened_at is not None or process.final:
        raise IllegalMove("it has begun with its other input")
    return with_input(process, history, input, sender, now=now, restart=False)


def _adjusted_back(
    process: Process, history: Sequence[Event], mine: Event, sender: Sender, now: int, hosted: Collection[Pair] | None
) -> Commit:
    """Give a process the version, the priority or the deadline that it had before the event ``mine``."""
    since = [event.type for event in history if event.number > mine.number]
    was: Any = json.decode(mine.payload or b"{}", type=adjust.Adjusted).was
    if mine.type in since:
        raise IllegalMove("a person has set another one since")
    if mine.type is EventType.PRIORITY_SET:
        return adjust.with_priority(process, was, sender, now=now)
    if mine.type is EventType.DEADLINE_SET:
        return adjust.with_deadline(process, was, sender, now=now)
    if not SAYS_NOTHING_OF_TURNS.issuperset(since):
        raise IllegalMove("it has gone on with the other version since; `move` it back if what it has recorded fits")
    return adjust.moved(process, was, sender, now=now, hosted=hosted)
