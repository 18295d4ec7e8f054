"""Chains of thresholds in virtual time: each attempt counts once, whoever makes it, and a break waits for a person."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_thresholds
from tests.simulator.core_thresholds import calls
from tests.simulator.form import seeds

ROUGH = Swarm(nodes=3, latencies=(0.0005, 0.05), blows={"kill": 0.1, "pause": 0.1, "stop": 0.05}, storm_seconds=10.0)


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_a_chain_is_gone_through_once_in_its_order_whatever_happens(seed: int) -> None:
    simulate(calls, seed, workflows=[core_thresholds], swarm=ROUGH if seed % 2 else None).check()
