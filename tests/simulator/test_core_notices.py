"""Notices in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_notices import Desk, dispatch, parcel
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_a_reply_address_is_told_what_the_history_says_in_any_weather(seed: int) -> None:
    simulate(dispatch, seed, workflows=[Desk, parcel]).check()


@pytest.mark.long
def test_a_history_with_notices_is_repeated_to_the_byte() -> None:
    one = simulate(dispatch, 2, workflows=[Desk, parcel]).check()
    assert one.digest() == simulate(dispatch, 2, workflows=[Desk, parcel]).digest()
