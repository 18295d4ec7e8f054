"""Patches in a history: which were taken, and what commands keep of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import adjust, command, debounce, edit, run, transition
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.names import DEBOUNCED
from perdure.kernel.patch import SAYS_NOTHING_OF_TURNS, TakenPatch, has_passed, taken_in
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.kernel.workflow_retry import tried_again

AT = 1_800_000_000_000_000


def done(number: int, turn: int, name: str) -> Event:
    return Event(number, turn, EventType.STEP_COMPLETED, AT, "1", name, b"1", b"d")


def patch(number: int, turn: int, name: str) -> Event:
    return Event(number, 0, EventType.PATCHED, AT, name=name, payload=TakenPatch(turn).encode())


HISTORY = (
    done(1, 1, "a"), done(2, 1, "b"), patch(3, 1, "early"), done(4, 2, "c"), patch(5, 2, "late"), patch(6, 2, "early"),
)  # fmt: skip


def test_a_patch_was_taken_in_the_first_turn_that_says_so() -> None:
    assert taken_in(HISTORY) == {"early": 1, "late": 2}


@pytest.mark.parametrize(
    ("types", "passed"),
    [
        ([], False),
        ([EventType.REVIVED, EventType.BROKEN, EventType.RESUMED], False),
        ([EventType.RUN_OPENED], False),
        ([EventType.REVIVED, EventType.CHILD_STARTED], True),
        ([EventType.ATTEMPT_FAILED], True),
        ([EventType.PATCHED], True),
        ([EventType.STEP_COMPLETED, EventType.BROKEN, EventType.REPAIRED, EventType.HELD], False),
        ([EventType.REPAIRED, EventType.STEP_COMPLETED], True),
    ],
)
def test_only_what_a_turn_left_behind_says_that_it_was_run(types: list[EventType], passed: bool) -> None:
    assert has_passed([Event(number, 0, type, AT) for number, type in enumerate(types, 1)]) is passed


def test_whoever_runs_a_step_again_goes_the_way_that_was_taken_in_its_turn() -> None:
    process = Process(bytes(16), "order", None, b"[]", status=Status.FAILED, events=len(HISTORY), error=b"{}")
    commit = run.restarted_from(process, HISTORY, "b", Sender(who="Ann"), now=AT)
    assert taken_in(commit.events) == {"early": 1, "late": 2}


SENDER = Sender(who="Ann")
WAITING = Process(bytes(16), "order", f"{DEBOUNCED}A-1", b"[]", version=1, due_at=AT + 9, created_at=AT, changed_at=AT)
"""A process that a start has delayed: no worker has begun it."""
OWNED = replace(WAITING, key="A-1", owner=b"w" * 16, token=1, opened_at=AT)
"""One that a worker has claimed, and of which no turn is written yet."""
FAILURE = Failure("X", "x")
DECISIONS: dict[str, Callable[[Process, Sequence[Event]], Commit]] = {
    "hold": lambda row, past: command.held(row, SENDER, now=AT, idle_at=AT),
    "resume": lambda row, past: command.resumed(row, SENDER, now=AT),
    "retry": lambda row, past: run.retried(row, past, SENDER, now=AT),
    "restart": lambda row, past: run.restarted(row, past, SENDER, now=AT),
    "cancel in time": lambda row, past: command.bounded(row, SENDER, AT + 50, now=AT),
    "move": lambda row, past: adjust.moved(row, "2", SENDER, now=AT),
    "priority": lambda row, past: adjust.with_priority(row, 0, SENDER, now=AT),
    "deadline": lambda row, past: adjust.with_deadline(row, AT + 50, SENDER, now=AT),
    "input": lambda row, past: edit.with_input(row, past, b"[1]", SENDER, now=AT, restart=False),
    "attributes": lambda row, past: edit.with_attributes(row, past, {"stage": "late"}, SENDER, now=AT),
    "debounce": lambda row, past: debounce.put_off(row, past, WAITING, SENDER, due_at=AT + 50, now=AT),
    "begin": lambda row, past: debounce.begun(row, now=AT),
    "release": lambda row, past: transition.released(row, due_at=AT),
    "remind": lambda row, past: transition.reminded(row, idle_at=AT),
    "break": lambda row, past: transition.broken(row, FAILURE, now=AT, idle_at=AT),
    "worker dead": lambda row, past: transition.orphaned(row, now=AT, died=True, worker="w1", idle_at=AT),
    "renew": lambda row, past: run.renewed(row, b"[]", (), (), now=AT),
    "try again": lambda row, past: tried_again(row, past, FAILURE, at=AT + 50, now=AT),
}
"""All that may happen to a process, before a worker has written its first turn, and leaves it unfinished."""
LEFT_BEHIND = frozenset(
    {
        EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.TIMER_FIRED, EventType.MESSAGE_RECEIVED,
        EventType.ATTEMPT_FAILED, EventType.CHILD_STARTED, EventType.ANSWER_IGNORED, EventType.SIGNAL_SENT,
        EventType.UNDO_OWED, EventType.PATCHED, EventType.RESULT_KEPT, EventType.SET_BY_HAND, EventType.SKIPPED,
        EventType.PUBLISHED, EventType.ATTRIBUTES_SET, EventType.CALL_ANSWERED, EventType.CALL_REFUSED,
        EventType.TIMER_CHANGED, EventType.ATTEMPT_BEGUN, EventType.LOOK_CUT_SHORT, EventType.ARGUMENTS_KEPT,
    }
)  # fmt: skip
"""What a turn has left behind, or followed from one."""
ENDS = frozenset(
    {
        EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED, EventType.TERMINATED, EventType.EXPIRED,
        EventType.GIVEN_UP,
    }
)  # fmt: skip
"""After these no turn of the run follows."""


def test_each_type_of_event_is_known_to_say_that_a_turn_was_run_or_to_say_nothing_of_turns() -> None:
    said = [*SAYS_NOTHING_OF_TURNS, *LEFT_BEHIND, *ENDS, EventType.REPAIRED]
    assert sorted(said) == sorted(EventType), (
        "to which of these does a new type belong: can it come before the first turn?"
    )


@pytest.mark.parametrize("first", DECISIONS)
def test_whatever_is_done_to_a_process_before_its_first_turn_says_nothing_of_turns(first: str) -> None:
    decided = 0
    held = command.held(WAITING, SENDER, now=AT, idle_at=AT)
    for begins, before in ((WAITING, ()), (OWNED, ()), (held.after, held.events)):
        for then in DECISIONS:
            row, past = begins, list(before)
            try:
                for name in (first, then):
                    commit = DECISIONS[name](row, past)
                    past = [*(past if commit.after.run == row.run else ()), *commit.events]
                    row = commit.after
                    assert not has_passed(past), f"{first}, then {then}: {past}"
                    decided += 1
            except IllegalMove:
                continue
    assert decided
