"""Calls from the worker that holds the machine, in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_callers import Book, offices, writer
from tests.simulator.form import seeds


def test_calls_from_where_the_machine_lives_count_once_and_in_order_in_any_weather() -> None:
    for seed in seeds(3, 12):
        simulate(offices, seed, workflows=[Book, writer]).check()


@pytest.mark.long
def test_a_history_with_such_calls_is_repeated_to_the_byte() -> None:
    one = simulate(offices, 3, workflows=[Book, writer]).check()
    assert one.digest() == simulate(offices, 3, workflows=[Book, writer]).digest()
