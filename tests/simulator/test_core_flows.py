"""Flows in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_flows import Order, orders


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_each_event_counts_where_its_table_says_in_any_weather(first: int) -> None:
    for seed in range(first, first + 8):
        simulate(orders, seed, workflows=[Order.__machine__]).check()


def test_a_history_with_flows_is_repeated_to_the_byte() -> None:
    one = simulate(orders, 4, workflows=[Order.__machine__])
    assert one.digest() == simulate(orders, 4, workflows=[Order.__machine__]).digest()
