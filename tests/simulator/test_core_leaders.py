"""Leaders in virtual time: no leader works after a later one has begun, and everybody leads in the end."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator import core_leaders
from tests.simulator.core_leaders import reigns
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_no_leader_works_after_a_later_one_has_begun_in_any_weather(seed: int) -> None:
    simulate(reigns, seed, workflows=[core_leaders]).check()


@pytest.mark.long
def test_a_history_with_leaders_is_repeated_to_the_byte() -> None:
    one = simulate(reigns, 4, workflows=[core_leaders]).check()
    assert one.digest() == simulate(reigns, 4, workflows=[core_leaders]).digest()
