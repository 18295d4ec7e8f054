"""Operations in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator import core_operations
from tests.simulator.core_operations import operated
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_an_operation_commands_each_process_once_and_counts_truly_in_any_weather(seed: int) -> None:
    simulate(operated, seed, workflows=[core_operations]).check()


@pytest.mark.long
def test_a_history_with_operations_is_repeated_to_the_byte() -> None:
    one = simulate(operated, 5, workflows=[core_operations]).check()
    assert one.digest() == simulate(operated, 5, workflows=[core_operations]).digest()
