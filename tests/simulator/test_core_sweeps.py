"""Sweeps come past every crowd, whatever happens to the workers meanwhile: pages are small, and nothing is cut off."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator import core_sweeps
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_no_crowd_hides_what_is_stuck_behind_it_in_any_weather(seed: int) -> None:
    simulate(core_sweeps.crowds, seed, workflows=[core_sweeps]).check()


def test_the_boring_history_has_a_crowd_larger_than_a_page() -> None:
    history = simulate(core_sweeps.crowds, 0, choices={}, workflows=[core_sweeps]).check()
    assert history.seconds > core_sweeps.TOLD_SECONDS
