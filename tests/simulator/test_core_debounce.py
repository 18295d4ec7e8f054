"""Debounced starts in virtual time: whatever is killed, lost or late, a process begins once and with the last start."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_debounce
from tests.simulator.core_debounce import issues
from tests.simulator.form import seeds

ROUGH = Swarm(
    nodes=3,
    latencies=(0.0005, 0.05),
    faults={"failed before": 0.05, "failed after": 0.1, "died before": 0.01, "died after": 0.02},
    blows={"kill": 0.1, "pause": 0.1, "stop": 0.05},
    storm_seconds=20.0,
)


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_a_process_begins_once_with_the_last_start_whatever_happens(seed: int) -> None:
    simulate(issues, seed, workflows=[core_debounce], swarm=ROUGH if seed % 2 else None).check()
