"""Flows in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_flows import Order, orders
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(3, 16))
def test_each_event_counts_where_its_table_says_in_any_weather(seed: int) -> None:
    simulate(orders, seed, workflows=[Order.__machine__]).check()


@pytest.mark.long
def test_a_history_with_flows_is_repeated_to_the_byte() -> None:
    one = simulate(orders, 4, workflows=[Order.__machine__]).check()
    assert one.digest() == simulate(orders, 4, workflows=[Order.__machine__]).digest()
