"""Notices in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_notices import Desk, dispatch, parcel


@pytest.mark.parametrize("first", range(0, 16, 8))
def test_a_reply_address_is_told_what_the_history_says_in_any_weather(first: int) -> None:
    for seed in range(first, first + 8):
        simulate(dispatch, seed, workflows=[Desk, parcel]).check()


def test_a_history_with_notices_is_repeated_to_the_byte() -> None:
    one = simulate(dispatch, 2, workflows=[Desk, parcel])
    assert one.digest() == simulate(dispatch, 2, workflows=[Desk, parcel]).digest()
