"""The store's time as a worker estimates it between two answers of the store."""

from __future__ import annotations

import pytest

from perdure.clock import SECOND, Computer
from perdure.runtime.store_time import StoreTime


class Clock(Computer):
    """A machine whose monotonic clock is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        """What it was set to."""
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def time(clock: Clock) -> StoreTime:
    time = StoreTime(clock)
    time.heard(1_000 * SECOND, clock.seconds)
    return time


def test_it_goes_on_by_the_monotonic_clock(time: StoreTime, clock: Clock) -> None:
    clock.seconds += 2.5
    assert time.now() == 1_002_500_000


def test_an_answer_that_was_long_under_way_does_not_set_it_back(time: StoreTime, clock: Clock) -> None:
    clock.seconds += 5
    assert time.now() == 1_005 * SECOND
    time.heard(1_002 * SECOND, clock.seconds - 3)
    assert time.last == time.now() == 1_005 * SECOND


def test_it_follows_a_store_whose_clock_was_put_back_while_nobody_looked(time: StoreTime, clock: Clock) -> None:
    clock.seconds += 5
    assert time.now() == 1_005 * SECOND
    time.heard(1_003 * SECOND, clock.seconds - 0.5)
    assert time.last == time.now() == 1_003 * SECOND + SECOND // 2
    clock.seconds += 1
    assert time.now() == 1_004 * SECOND + SECOND // 2


def test_an_answer_from_before_another_one_does_not_set_it_back(time: StoreTime, clock: Clock) -> None:
    sent = clock.seconds
    clock.seconds += 1
    time.heard(1_600 * SECOND, clock.seconds)  # the store's clock was put forward meanwhile
    time.heard(1_000 * SECOND, sent)
    assert time.last == time.now() == 1_600 * SECOND


def test_what_was_answered_is_never_taken_back(time: StoreTime, clock: Clock) -> None:
    time.heard(1_004 * SECOND, clock.seconds)
    assert time.last == 1_004 * SECOND


def test_what_the_store_has_surely_reached_is_what_it_has_last_said(time: StoreTime, clock: Clock) -> None:
    clock.seconds += 5
    assert (time.now(), time.confirmed) == (1_005 * SECOND, 1_000 * SECOND)
    time.heard(1_003 * SECOND, clock.seconds - 3)
    assert (time.now(), time.confirmed) == (1_005 * SECOND, 1_003 * SECOND)
    time.forget()
    assert time.confirmed == 0
