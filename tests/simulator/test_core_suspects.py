"""Suspects in simulated clusters: the guilty are parked alone, the innocent neither parked nor kept waiting."""

from __future__ import annotations

import pytest

from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_suspects
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_the_guilty_are_parked_alone_and_the_innocent_come_to_their_end(seed: int) -> None:
    simulate(core_suspects.guilty_among_many, seed, workflows=[core_suspects]).check()


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_suspects_that_last_for_long_do_not_hold_up_the_rest(seed: int) -> None:
    swarm = Swarm(nodes=2)
    simulate(core_suspects.lasting_suspects, seed, workflows=[core_suspects], swarm=swarm).check()


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_suspect_that_is_taken_over_of_a_worker_that_stands_still_is_run_to_its_end(seed: int) -> None:
    swarm = Swarm(nodes=2, options=WorkerOptions(lease_seconds=2.0, beat_seconds=0.5, stop_seconds=1.0))
    history = simulate(core_suspects.taken_over, seed, workflows=[core_suspects], swarm=swarm).check()
    assert history.probes["a suspect was taken over"]


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_quarantine_worker_that_loses_a_lease_frees_its_suspect_before_it_takes_another(seed: int) -> None:
    swarm = Swarm(nodes=2, options=WorkerOptions(lease_seconds=2.0, beat_seconds=0.5, stop_seconds=1.0))
    history = simulate(core_suspects.cut_off, seed, workflows=[core_suspects], swarm=swarm).check()
    assert history.probes["a worker claimed again"]
