"""Forks in virtual time: whatever is killed, lost or late, a key has one fork, which does nothing that was done."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import History, Swarm, simulate
from tests.simulator.core_forks import errand, forks
from tests.simulator.form import seeds

ROUGH = Swarm(
    nodes=2,
    latencies=(0.0005, 0.05),
    faults={"failed before": 0.05, "failed after": 0.1, "died before": 0.01, "died after": 0.02},
    blows={"kill": 0.05, "pause": 0.05},
    late=0.5,
    storm_seconds=10.0,
)


def history(seed: int, swarm: Swarm | None = None) -> History:
    return simulate(forks, seed, workflows=[errand], swarm=swarm)


def test_a_key_has_one_fork_and_both_end_whatever_happens() -> None:
    for seed in seeds(3, 16):
        history(seed, ROUGH if seed % 2 else None).check()


@pytest.mark.long
def test_a_history_with_forks_is_repeated_to_the_byte() -> None:
    assert history(3, ROUGH).digest() == history(3, ROUGH).digest()
