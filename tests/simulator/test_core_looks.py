"""Looks for letters that are cut short, in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import simulate
from tests.simulator.core_looks import desk, looking
from tests.simulator.form import enough, seeds


def test_looks_for_letters_that_are_cut_short_at_any_moment_lose_no_letter_and_fit_every_replay() -> None:
    probes: Counter[str] = Counter()
    for seed in seeds(10, 40):
        probes += simulate(looking, seed, workflows=[desk]).check().probes
        if enough(seed, 4) and probes["a look for letters was cut short"] > 10:
            break
    assert probes["a look for letters was cut short"] > 10
