"""Delayed revivals in virtual time: what was under way goes on as late as its state says, or waits for a person."""

from __future__ import annotations

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_revivals
from tests.simulator.core_revivals import Seen, errands
from tests.simulator.form import enough, seeds

CALM = Swarm(nodes=2)
ROUGH = Swarm(nodes=3, latencies=(0.0005, 0.05), blows={"kill": 0.1, "pause": 0.05, "stop": 0.05}, storm_seconds=10.0)


def test_nothing_goes_on_before_its_time_and_what_is_not_to_be_revived_waits_for_a_person() -> None:
    late = stayed = 0
    for seed in range(24):
        simulate(errands, seed, workflows=[core_revivals], swarm=ROUGH if seed % 2 else None).check()
        late, stayed = late + Seen.late["late"], stayed + Seen.stayed
        if enough(seed, 3) and late and stayed:
            break
    assert late, "no step has waited for its revival"
    assert stayed, "no errand has met the loss of its worker where it is not to be revived"


def test_in_calm_weather_nothing_is_revived() -> None:
    for seed in seeds(2, 8):
        simulate(errands, seed, workflows=[core_revivals], swarm=CALM).check()
        assert not Seen.late and not Seen.stayed
