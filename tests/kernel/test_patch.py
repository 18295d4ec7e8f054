"""Patches in a history: which were taken, and what commands keep of them."""

from __future__ import annotations

import pytest

from perdure.kernel import run
from perdure.kernel.event import Event, EventType
from perdure.kernel.patch import TakenPatch, has_passed, taken_in
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender

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
    ],
)
def test_only_what_a_turn_left_behind_says_that_it_was_run(types: list[EventType], passed: bool) -> None:
    assert has_passed([Event(number, 0, type, AT) for number, type in enumerate(types, 1)]) is passed


def test_whoever_runs_a_step_again_goes_the_way_that_was_taken_in_its_turn() -> None:
    process = Process(bytes(16), "order", None, b"[]", status=Status.FAILED, events=len(HISTORY), error=b"{}")
    commit = run.restarted_from(process, HISTORY, "b", Sender(who="Ann"), now=AT)
    assert taken_in(commit.events) == {"early": 1, "late": 2}
