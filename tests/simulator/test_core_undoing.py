"""Undoing in virtual time: it goes on by itself, rests while it waits, and nothing else begins beside it."""

from __future__ import annotations

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_undoing
from tests.simulator.core_undoing import trips
from tests.simulator.form import seeds

ROUGH = Swarm(
    nodes=2,
    latencies=(0.0005, 0.05),
    blows={"kill": 0.05, "pause": 0.05, "stop": 0.05},
    refusals=0.1,
    storm_seconds=10.0,
)


def test_what_was_booked_is_given_back_and_nothing_is_posted_meanwhile() -> None:
    resumed = 0
    for seed in seeds(6, 40):
        history = simulate(trips, seed, workflows=[core_undoing], swarm=ROUGH if seed % 2 else None).check()
        resumed += history.events["resumed"]
    assert resumed, "no undo has failed for good"
