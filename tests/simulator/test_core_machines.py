"""Machines in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_machines import Till, tills
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_each_call_counts_once_and_in_order_in_any_weather(seed: int) -> None:
    simulate(tills, seed, workflows=[Till]).check()


@pytest.mark.long
def test_a_history_with_machines_is_repeated_to_the_byte() -> None:
    one = simulate(tills, 4, workflows=[Till]).check()
    assert one.digest() == simulate(tills, 4, workflows=[Till]).digest()
