"""Moves to other versions, priorities and deadlines that people set, in virtual time."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_adjusting import adjustments, freight, freight_by_rail
from tests.simulator.form import seeds

HOSTED = [freight, freight_by_rail]


def test_what_a_person_has_set_counts_whoever_holds_the_process_in_any_weather() -> None:
    for seed in seeds(3, 40):
        simulate(adjustments, seed, workflows=HOSTED).check()


@pytest.mark.long
def test_a_history_with_adjustments_is_repeated_to_the_byte() -> None:
    one = simulate(adjustments, 5, workflows=HOSTED).check()
    assert one.digest() == simulate(adjustments, 5, workflows=HOSTED).digest()
