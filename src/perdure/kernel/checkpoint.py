"""A checkpoint: where a machine stood when its last method ended, kept in its row beside the values of its fields.

A method that has ended is never run again, not even by new code: what it has left behind is in the fields. A replay
runs the method that was under way, if there was one, from what the history has of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from perdure.errors import PerdureError
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.kernel.stored import reader, why_undecodable

MARK = "@machine"
"""The checkpoint's name among the fields; no field can be called so."""
_BEGINNING = b'{"' + MARK.encode() + b'":'
_BRANCH = re.compile(r"(?:^|:)\.0\.(\d+)[.:]")
WAIT = " wait"
"""Ends the place of the timer of a machine's wait. Waits are counted apart from other timers: a replay waits for a
letter that was there already, unseen by the code.
"""


class Repair(Struct, frozen=True, omit_defaults=True):
    """The method that is to run next, with its arguments, since a person has ordered it ``at`` that time.

    With ``timer`` it runs in place of the timer's method, whose time counts no more.
    """

    method: str
    call: Raw
    at: int
    timer: bool = False


class Checkpoint(Struct, frozen=True, omit_defaults=True):
    """Where the machine stood in turn ``turn`` of run ``run``.

    ``method`` counts the waits of this run, each with the method that it led to: those with lower numbers have ended.
    It is 0 if the machine's beginning has failed: then there are no fields yet.
    ``letter`` is the inbox number of the signal or call whose method began in that very turn, 0 if none did. ``due`` is
    when the machine's timer fires (microseconds), ``form`` the version of its fields. A ``repair`` comes before all
    that waits. With ``removal`` the timer removes the machine; one that is ``closed`` is about to go. ``context`` is
    that of the method which has set the timer.
    """

    run: int
    turn: int = 0
    method: int = 0
    letter: int = 0
    due: int | None = None
    form: int = 1
    repair: Repair | None = None
    removal: bool = False
    closed: bool = False
    context: str = ""


class TimerChange(Struct, frozen=True, omit_defaults=True):
    """What a method has done to a timer, or a removal, that was set: it was to come at ``was``, now it comes at ``to``.

    Times are microseconds; ``to`` is None if nothing is set any more. ``removal_was`` and ``removal`` say that it was,
    or is, the removal of the machine.
    """

    method: str
    was: int
    removal_was: bool = False
    to: int | None = None
    removal: bool = False

    def encode(self) -> bytes:
        """The payload of the event."""
        return json.encode(self)


timer_change = reader(TimerChange, "what a method has done to the timer")
"""The change that an event records."""


_read = reader(Checkpoint, "where this machine stood")
_parts = reader(dict[str, Raw], "the state of this machine")


def written(checkpoint: Checkpoint, fields: bytes) -> bytes:
    """The state of a machine as its row keeps it; ``fields`` is a JSON object."""
    return _BEGINNING + json.encode(checkpoint) + (b"}" if fields == b"{}" else b"," + fields[1:])


def is_checkpoint(state: bytes | None) -> bool:
    """Whether a state is a machine's; raises UnreadablePayload if that cannot be seen, since it was not opened."""
    if (why := why_undecodable(state)) is not None:
        raise why
    return state is not None and state.startswith(_BEGINNING)


def has_begun(state: bytes | None) -> bool:
    """Whether a state is that of a machine which has begun, and has fields; raises UnreadablePayload."""
    return state is not None and is_checkpoint(state) and parted(state)[0].method > 0


def is_closed(state: bytes | None) -> bool:
    """Whether a state is that of a machine which removes itself, as far as it can be read."""
    try:
        return state is not None and is_checkpoint(state) and parted(state)[0].closed
    except PerdureError:
        return False


def parted(state: bytes) -> tuple[Checkpoint, bytes]:
    """The checkpoint in a machine's state, and its fields as a JSON object; raises UnreadablePayload."""
    parts = dict(_parts(state))
    checkpoint = _read(bytes(parts.pop(MARK)))
    return checkpoint, json.encode(parts)


def shown(state: bytes | None) -> bytes | None:
    """The state as people see it: of a machine the fields alone, as far as they can be read."""
    try:
        return parted(state)[1] if state is not None and is_checkpoint(state) else state
    except PerdureError:
        return state


def carried_over(process: Process, run: int) -> bytes | None:
    """The state of a process that goes on in another run, where it was; raises UnreadablePayload."""
    state = process.state
    if state is None or not is_checkpoint(state):
        return state
    checkpoint, fields = parted(state)
    return written(replace(checkpoint, run=run), fields)


def unfinished(process: Process, history: Sequence[Event]) -> Sequence[Event]:
    """Of a machine's history what belongs to the method under way, and to no method at all; any other history whole.

    Raises UnreadablePayload.
    """
    if process.state is None or not is_checkpoint(process.state):
        return history
    checkpoint, _ = parted(process.state)
    if checkpoint.run != process.run:  # it has ended this run, and the next one is about to be opened
        return [event for event in history if event.turn == 0 and branch(event.place) is None]
    return [event for event in history if _is_open(event, checkpoint)]


def as_far_as_known(process: Process, history: Sequence[Event]) -> Sequence[Event]:
    """The same; of a machine whose state cannot be read, the history whole."""
    try:
        return unfinished(process, history)
    except PerdureError:
        return history


def last_turn(process: Process, history: Sequence[Event]) -> int:
    """The number of the last turn of a machine; 0 for any other process, whose replay counts its turns."""
    if process.state is None or not is_checkpoint(process.state):
        return 0
    return max(turn_before(process), *(event.turn for event in history), 0)


def turn_before(process: Process) -> int:
    """The number of the turn after which a machine's method under way began; 0 for any other process."""
    if process.state is None or not is_checkpoint(process.state):
        return 0
    checkpoint, _ = parted(process.state)
    return checkpoint.turn if checkpoint.run == process.run else 0


def _is_open(event: Event, checkpoint: Checkpoint) -> bool:
    if event.turn == 0:
        number = branch(event.place)
        return number is None or number >= checkpoint.method
    if event.turn > checkpoint.turn:
        return True
    return event.type is EventType.MESSAGE_RECEIVED and 0 < checkpoint.letter == event.message


def branch(place: str) -> int | None:
    """The number of the wait or method to which a place of a machine belongs; None if it belongs to none."""
    found = _BRANCH.search(place)
    return None if found is None else int(found[1])
