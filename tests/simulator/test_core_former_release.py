"""Workers of the first release beside today's in histories: every signal is heard in the end."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import simulate
from tests.simulator import core_former_release
from tests.simulator.form import WHOLE, enough


def test_signals_that_workers_of_the_first_release_overlook_are_heard_in_any_weather() -> None:
    probes: Counter[str] = Counter()
    for seed in range(18):
        probes += simulate(core_former_release.beside, seed, workflows=[core_former_release]).check().probes
        if enough(seed, 6) and probes["an overlooked signal was found"] > (10 if WHOLE else 0):
            break
    assert probes["an overlooked signal was found"] > (10 if WHOLE else 0)
