"""Circuit breakers in virtual time: no attempt is barred for ever, none is made where none may be."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator import core_breakers
from tests.simulator.core_breakers import outages
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(1, 16))
def test_no_attempt_is_made_while_it_is_open_and_all_ends_when_the_bank_is_back(seed: int) -> None:
    simulate(outages, seed, workflows=[core_breakers]).check()


@pytest.mark.long
def test_a_history_with_a_breaker_is_repeated_to_the_byte() -> None:
    one = simulate(outages, 4, workflows=[core_breakers]).check()
    assert one.digest() == simulate(outages, 4, workflows=[core_breakers]).digest()
