"""Nodes whose event loop is blocked for ever: their watchdogs end them, and what blocked them is parked."""

from __future__ import annotations

import pytest

from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_hangs
from tests.simulator.form import seeds

DEFAULTS = WorkerOptions()


@pytest.mark.parametrize("seed", seeds(1, 10))
@pytest.mark.parametrize("options", [WorkerOptions(lease_seconds=5.0, beat_seconds=1.0), DEFAULTS], ids=["5 s", "15 s"])
def test_what_hangs_takes_two_workers_and_then_runs_alone_and_its_neighbours_are_no_suspects(
    seed: int, options: WorkerOptions
) -> None:
    simulate(core_hangs.among_neighbours, seed, workflows=[core_hangs], swarm=Swarm(nodes=3, options=options)).check()


@pytest.mark.parametrize("seed", seeds(2, 10))
def test_what_hangs_once_goes_on_elsewhere_within_the_time_of_a_lease(seed: int) -> None:
    simulate(core_hangs.once, seed, workflows=[core_hangs], swarm=Swarm(nodes=2, options=DEFAULTS)).check()


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_what_hangs_is_parked_and_everybody_else_goes_on_in_any_weather(seed: int) -> None:
    simulate(core_hangs.in_any_weather, seed, workflows=[core_hangs]).check()
