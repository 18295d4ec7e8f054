"""Retries in virtual time: what a child has answered too early is neither lost nor done again."""

from __future__ import annotations

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_retries
from tests.simulator.core_retries import estates
from tests.simulator.form import seeds

ROUGH = Swarm(
    nodes=2,
    latencies=(0.0005, 0.05),
    faults={"failed before": 0.05, "failed after": 0.1, "died before": 0.01, "died after": 0.02},
    blows={"kill": 0.05, "pause": 0.05, "stop": 0.05},
    storm_seconds=10.0,
)


def test_an_estate_that_is_retried_until_it_is_settled_loses_no_heir() -> None:
    early = 0
    for seed in seeds(4, 24):
        history = simulate(estates, seed, workflows=[core_retries], swarm=ROUGH if seed % 2 else None).check()
        early += history.events["answer_ignored"]
    assert early > 4, "too few heirs have answered before they were asked for"
