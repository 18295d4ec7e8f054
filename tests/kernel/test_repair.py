"""A repair gives up the method that has failed: whether that is the timer's is seen from the history."""

from __future__ import annotations

import pytest
from msgspec import Raw
from msgspec.structs import replace

from perdure.kernel.checkpoint import Checkpoint, Repair, parted, written
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.repair import repaired
from perdure.kernel.transition import Sender

ANN = Sender("ann", "by the books", "cli")
STOOD = Checkpoint(1, turn=5, method=4, due=99)
EARLIER = Event(1, 3, EventType.TIMER_FIRED, 40, place=".0.3:1 wait", name="timer")
FIRED = Event(2, 6, EventType.TIMER_FIRED, 99, place=".0.4:1 wait", name="timer")
SLEPT = Event(3, 7, EventType.TIMER_FIRED, 100, place=".0.4:1", name="timer")
LETTER = Event(3, 6, EventType.MESSAGE_RECEIVED, 99, name="pay", message=2)
LATER = Event(4, 8, EventType.MESSAGE_RECEIVED, 101, name="word", message=3)


def order(checkpoint: Checkpoint, *history: Event) -> Repair:
    """The repair that is ordered for a machine that stood there, and has this history."""
    process = Process(
        bytes(16), "meter", None, b"[]", Status.BROKEN, run=1, version=7, token=3, due_at=500, reminder=True, events=9,
        state=written(checkpoint, b'{"reading":1}'),
    )  # fmt: skip
    after, _ = parted(repaired(process, history, "corrected", b"[7]", ANN, now=120).after.state or b"")
    assert after.repair is not None and after.due == checkpoint.due
    return after.repair


@pytest.mark.parametrize(
    ("history", "timer"),
    [
        ([EARLIER, FIRED], True),
        ([EARLIER, FIRED, SLEPT], True),
        ([EARLIER, FIRED, LATER], True),
        ([EARLIER, FIRED, LETTER], False),
        ([EARLIER, LETTER, SLEPT], False),
        ([EARLIER, SLEPT], False),
        ([EARLIER], False),
        ([], False),
    ],
    ids=[
        "its time came", "it has slept since", "it has received a letter since", "a letter came with its time",
        "a letter came before", "another timer came", "no time came since", "nothing came",
    ],
)  # fmt: skip
def test_the_timer_s_method_has_failed_if_its_time_came_and_no_letter_with_it(
    history: list[Event], timer: bool
) -> None:
    assert order(STOOD, *history).timer is timer


def test_a_method_whose_letter_was_there_when_the_wait_began_is_not_the_timer_s() -> None:
    begun = replace(LETTER, turn=5)
    assert not order(replace(STOOD, letter=2), EARLIER, begun).timer


@pytest.mark.parametrize("timer", [False, True])
def test_a_repair_in_place_of_one_that_has_failed_is_in_place_of_the_same_method(timer: bool) -> None:
    before = Repair("put_off", Raw(b"[60]"), 110, timer)
    assert order(replace(STOOD, turn=6, repair=before), EARLIER, FIRED).timer is timer


def test_a_removal_is_no_method_and_its_time_stays() -> None:
    assert not order(replace(STOOD, removal=True), EARLIER, FIRED).timer
