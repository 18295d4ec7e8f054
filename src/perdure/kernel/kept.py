"""What a new run keeps of the history before it: by a retry, by a restart from a step, by a fork."""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from perdure.errors import PerdureError
from perdure.kernel import undo
from perdure.kernel.event import DELIVERED, EDITS, RESULTS, Event, EventType
from perdure.kernel.retry import decode_attempt

_KEPT_EVIDENCE = frozenset(
    {
        EventType.ATTEMPT_FAILED, EventType.CHILD_STARTED, EventType.SIGNAL_SENT, EventType.UNDO_OWED,
        EventType.RESULT_KEPT, EventType.SET_BY_HAND, EventType.SKIPPED, EventType.PATCHED, EventType.PUBLISHED,
        EventType.ATTRIBUTES_SET, EventType.CALL_ANSWERED, EventType.CALL_REFUSED, EventType.ATTEMPT_BEGUN,
        EventType.RUN_RETRIED, EventType.ARGUMENTS_KEPT, EventType.LOOK_CUT_SHORT, EventType.ATTRIBUTES_EDITED,
        EventType.ANSWER_IGNORED,
    }
)  # fmt: skip
"""What belongs to no turn. An answer that came too early is among them: it is not offered again if a later message was
received, and the child that has given it lives on in the new run. Whatever stands neither here nor in ``DELIVERED`` is
left behind; ``tests/kernel/test_kept.py`` has a reason for each.
"""

_LASTING = frozenset({EventType.CHILD_STARTED, EventType.PATCHED, EventType.ATTEMPT_BEGUN, EventType.ATTRIBUTES_EDITED})
"""Events kept whatever failed before them: children live on, a patch stays taken, what may run once has begun, and what
a person has edited stays.
"""


def kept_around(history: Sequence[Event], chosen: Event) -> tuple[list[Event], list[Event]]:
    """What is worth keeping before the chosen event, and the results recorded later, for steps that are open then.

    If the chosen event answers a step, this step runs again.
    """
    later = [event for event in history if event.number > chosen.number]
    again = {(event.name, event.place) for event in later if event.type is EventType.STEP_FAILED}
    again |= _have_broken(history)
    if chosen.type in RESULTS:
        again.add((chosen.name, chosen.place))
    prefix = [
        event
        for event in history
        if _worth_keeping(event, again) and (event.number < chosen.number or event.type is EventType.PATCHED)
    ]
    return prefix, _beside(later)


def _beside(later: Sequence[Event]) -> list[Event]:
    """The results recorded later, for steps that are open then; the answers of children are offered as messages."""
    last = max((event.number for event in later if event.type in DELIVERED), default=0)
    return [
        replace(event, turn=0, type=EventType.RESULT_KEPT)
        for event in later
        if (event.type is EventType.STEP_COMPLETED and event.message is None and undo.undoes(event.place) is None)
        or (event.type is EventType.RESULT_KEPT and event.number > last)
    ]


def last_good(history: Sequence[Event]) -> list[Event]:
    """The delivered events, failed attempts and children before the last step that failed for good.

    A process that only ran out of time, or was given up as it ran, goes on where it was, also with its undoing: its
    code had coped with whatever failed before.
    """
    failed = next((event for event in reversed(history) if event.type is EventType.STEP_FAILED), None)
    if failed is None or ended_from_outside(history):
        return all_kept(history)
    return kept_before(history, failed)


def all_kept(history: Sequence[Event]) -> list[Event]:
    """All events that a run with the same past keeps."""
    again = _have_broken(history)
    return [event for event in history if _worth_keeping(event, again)]


def kept_before(history: Sequence[Event], failed: Event) -> list[Event]:
    """The events worth keeping before a failure, and children started after it, which live on; no failed child."""
    again = {(failed.name, failed.place)} | _have_broken(history)
    return [
        event
        for event in history
        if _worth_keeping(event, again) and (event.number < failed.number or event.type in _LASTING)
    ]


def _have_broken(history: Sequence[Event]) -> set[tuple[str, str]]:
    """The steps whose retry policy has parked the process: in a new run they have all their attempts again."""
    return {(event.name, event.place) for event in history if event.type is EventType.ATTEMPT_FAILED and _breaks(event)}


def _breaks(event: Event) -> bool:
    try:
        return decode_attempt(event.payload or b"").breaks
    except PerdureError:
        return False


def _worth_keeping(event: Event, again: Set[tuple[str, str]]) -> bool:
    """Whether an event goes into a new run; the steps that run ``again`` leave no evidence of their attempts."""
    return event.type in DELIVERED or (event.type in _KEPT_EVIDENCE and (event.name, event.place) not in again)


def ended_from_outside(history: Sequence[Event]) -> bool:
    """Whether no step is to blame for the end: its time was over, or a person has given it up as it ran."""
    types = [event.type for event in history if event.type not in EDITS]
    before, last = [None, None, *types[-2:]][-2:]
    return last is EventType.EXPIRED or (last is EventType.GIVEN_UP and before is not EventType.BROKEN)
