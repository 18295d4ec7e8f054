"""Chains of thresholds in virtual time: each attempt counts once, whoever makes it, and a break waits for a person."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_thresholds
from tests.simulator.core_thresholds import calls

ROUGH = Swarm(nodes=3, latencies=(0.0005, 0.05), blows={"kill": 0.1, "pause": 0.1, "stop": 0.05}, storm_seconds=10.0)


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_a_chain_is_gone_through_once_in_its_order_whatever_happens(first: int) -> None:
    for seed in range(first, first + 6):
        simulate(calls, seed, workflows=[core_thresholds], swarm=ROUGH if seed % 2 else None).check()
