"""Looks for letters that are cut short, in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

from tests.simulator.core_looks import desk, looking
from tests.simulator.form import play_until, seeds


def test_looks_for_letters_that_are_cut_short_at_any_moment_lose_no_letter_and_fit_every_replay() -> None:
    play_until("a look for letters was cut short", 10, looking, [desk], seeds(10, 40), some=4)
