"""An event: one fact in a process's history, numbered 1, 2, 3 … per run, appended and never altered."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class EventType(IntEnum):
    """What happened. The first group is delivered to the process's code again at replay."""

    STEP_COMPLETED = 1
    STEP_FAILED = 2
    TIMER_FIRED = 3
    MESSAGE_RECEIVED = 4

    ATTEMPT_FAILED = 20
    REVIVED = 21
    RUN_OPENED = 22
    HELD = 23
    RESUMED = 24
    CHILD_STARTED = 25
    ANSWER_IGNORED = 26
    SIGNAL_SENT = 27
    UNDO_OWED = 28
    PATCHED = 29
    GIVEN_UP = 30
    REPAIRED = 31
    RESULT_KEPT = 32
    SET_BY_HAND = 33
    SKIPPED = 34
    DEADLINE_SET = 35
    PUBLISHED = 36
    ATTRIBUTES_SET = 37
    CALL_ANSWERED = 38
    CALL_REFUSED = 39

    COMPLETED = 40
    FAILED = 41
    CANCELLED = 42
    BROKEN = 43
    TERMINATED = 44
    EXPIRED = 45

    KEY_RELEASED = 46
    TIMER_CHANGED = 47
    ATTEMPT_BEGUN = 48
    """An attempt of a step that runs at most once is about to begin: written before it, and only for such steps."""
    RUN_RETRIED = 49
    """The run is another attempt of a workflow whose run before has failed: with that failure, and when it begins."""
    FIELDS_EDITED = 50
    """A person has given fields of a machine other values."""
    VERSION_MOVED = 60
    """A person has moved the process to another version of its code."""
    PRIORITY_SET = 61
    LOOK_CUT_SHORT = 62
    """The code stopped looking for letters in the store in the turn in which it had begun: a replay looks there too."""
    ATTRIBUTES_EDITED = 70
    """A person has given attributes other values."""
    ARGUMENTS_KEPT = 71
    """The arguments of a step that is asked for: only of steps that keep them."""


DELIVERED = frozenset(
    {EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.TIMER_FIRED, EventType.MESSAGE_RECEIVED}
)
"""Events that open or belong to a turn; the others are evidence for people."""

RESULTS = frozenset({EventType.STEP_COMPLETED, EventType.STEP_FAILED})
"""Events with what a step has come to."""

HAPPENED = frozenset({EventType.REVIVED, EventType.ATTEMPT_FAILED})
"""Events of what has happened to a process, whatever its code makes of that: they count though a turn is void."""

EDITS = frozenset(
    {
        EventType.DEADLINE_SET, EventType.PRIORITY_SET, EventType.VERSION_MOVED, EventType.FIELDS_EDITED,
        EventType.ATTRIBUTES_EDITED, EventType.KEY_RELEASED,
    }
)  # fmt: skip
"""Events by which something of a process is changed, and not its status."""

ANSWERS = frozenset({EventType.CALL_ANSWERED, EventType.CALL_REFUSED})
"""Events that answer a call. If several runs have answered the same call, the first answer counts."""
SHOWN = frozenset({EventType.PUBLISHED}) | ANSWERS
"""Events with what the code shows to others; those who wait for them are notified."""


class HistoryWanted(Struct, frozen=True, gc=False):
    """A question for the events ``first`` to ``last`` of one run of a process."""

    process: bytes
    run: int
    last: int
    first: int = 1


class Event(Struct, frozen=True, gc=False):
    """One row of the table ``event``; its key is (process, run, number).

    ``turn`` groups the events that were delivered together; ``at`` is the time of that turn. ``place`` and
    ``name`` say which step, timer or message. ``message`` is the inbox number of a received message, whose payload
    stays in the inbox. ``digest`` is that of the step's arguments. ``token`` and ``version`` name the commit that
    wrote the event: together with the process id they are the commit's id.
    """

    number: int
    turn: int
    type: EventType
    at: int
    place: str = ""
    name: str = ""
    payload: bytes | None = None
    digest: bytes | None = None
    message: int | None = None
    token: int = 0
    version: int = 0
