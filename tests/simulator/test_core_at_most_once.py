"""Steps that run at most once, in virtual time: none runs twice, whatever is killed, lost or late."""

from __future__ import annotations

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_at_most_once
from tests.simulator.core_at_most_once import Seen, payrolls
from tests.simulator.form import enough, seeds

CALM = Swarm(nodes=2)
ROUGH = Swarm(nodes=3, latencies=(0.0005, 0.05), blows={"kill": 0.1, "pause": 0.1, "stop": 0.05}, storm_seconds=10.0)


def test_no_transfer_is_made_twice_and_none_is_said_to_be_done_that_was_not() -> None:
    unknown = 0
    for seed in range(16):
        simulate(payrolls, seed, workflows=[core_at_most_once], swarm=ROUGH if seed % 2 else None).check()
        unknown += Seen.unknown
        if enough(seed, 3) and unknown > 0:
            break
    assert unknown, "no worker was lost in the middle of a transfer"


def test_in_calm_weather_the_end_of_every_transfer_is_known() -> None:
    for seed in seeds(2, 8):
        simulate(payrolls, seed, workflows=[core_at_most_once], swarm=CALM).check()
        assert Seen.disturbed or not Seen.unknown
