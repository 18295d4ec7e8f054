"""Calls that a machine hears before they are stored, in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

from tests.simulator.core_brought import List, lists, teller
from tests.simulator.form import play_until, seeds


def test_calls_that_are_heard_before_they_are_stored_count_once_or_not_at_all() -> None:
    play_until("such a call was turned away", 3, lists, [List, teller], seeds(10, 40, first=7), some=4)
