"""Machines in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_machines import Till, tills


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_each_call_counts_once_and_in_order_in_any_weather(first: int) -> None:
    for seed in range(first, first + 8):
        simulate(tills, seed, workflows=[Till]).check()


def test_a_history_with_machines_is_repeated_to_the_byte() -> None:
    one = simulate(tills, 4, workflows=[Till])
    assert one.digest() == simulate(tills, 4, workflows=[Till]).digest()
