"""Outages in virtual time: what is held is tried by canaries alone, and all ends when what it needs is back."""

from __future__ import annotations

from collections import Counter

import pytest

from perdure.testing.simulator import simulate
from tests.simulator import core_outages
from tests.simulator.core_outages import holidays
from tests.simulator.form import enough

MET = {
    "an outage is open",
    "an outage is half-open",
    "an outage is closed",
    "a canary was let through",
}


def test_a_kind_is_held_while_what_it_needs_is_away_and_nothing_is_lost_in_any_weather() -> None:
    probes: Counter[str] = Counter()
    for seed in range(32):
        probes += simulate(holidays, seed, workflows=[core_outages]).check().probes
        if enough(seed, 3) and probes.keys() >= MET:
            break
    assert probes.keys() >= MET


@pytest.mark.long
def test_a_history_with_an_outage_is_repeated_to_the_byte() -> None:
    one = simulate(holidays, 9, workflows=[core_outages]).check()
    assert one.digest() == simulate(holidays, 9, workflows=[core_outages]).digest()
