"""Schedules in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_schedules import almanac, issue
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_each_instant_comes_once_or_is_counted_as_left_out_in_any_weather(seed: int) -> None:
    simulate(almanac, seed, workflows=[issue]).check()


@pytest.mark.long
def test_a_history_with_schedules_is_repeated_to_the_byte() -> None:
    one = simulate(almanac, 3, workflows=[issue]).check()
    assert one.digest() == simulate(almanac, 3, workflows=[issue]).digest()
