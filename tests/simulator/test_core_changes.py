"""Edits, forks and removals of what others are told of, what waits for a breaker, and machines, in virtual time."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_changes import Shelf, crate, meddling
from tests.simulator.core_notices import Desk
from tests.simulator.form import seeds

HOSTED = [Desk, crate, Shelf]


def test_whatever_people_change_is_done_once_and_told_as_the_history_says_in_any_weather() -> None:
    for seed in seeds(3, 16):
        simulate(meddling, seed, workflows=HOSTED).check()


@pytest.mark.long
def test_a_history_with_such_changes_is_repeated_to_the_byte() -> None:
    one = simulate(meddling, 5, workflows=HOSTED).check()
    assert one.digest() == simulate(meddling, 5, workflows=HOSTED).digest()
