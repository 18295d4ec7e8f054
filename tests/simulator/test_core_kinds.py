"""Limits of a kind hold whenever a worker takes a process, whatever happens to the workers and whatever people set."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator import core_kinds
from tests.simulator.core_kinds import parcels
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_no_more_of_a_kind_run_or_start_than_its_limits_and_all_end_in_any_weather(seed: int) -> None:
    simulate(parcels, seed, workflows=[core_kinds]).check()


@pytest.mark.long
def test_a_history_with_a_limited_kind_is_repeated_to_the_byte() -> None:
    one = simulate(parcels, 4, workflows=[core_kinds]).check()
    assert one.digest() == simulate(parcels, 4, workflows=[core_kinds]).digest()
