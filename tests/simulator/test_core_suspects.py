"""Suspects in simulated clusters: the guilty are parked alone, the innocent neither parked nor kept waiting."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_suspects


@pytest.mark.parametrize("seed", range(8))
def test_the_guilty_are_parked_alone_and_the_innocent_come_to_their_end(seed: int) -> None:
    simulate(core_suspects.guilty_among_many, seed, workflows=[core_suspects]).check()


@pytest.mark.parametrize("seed", range(5))
def test_suspects_that_last_for_long_do_not_hold_up_the_rest(seed: int) -> None:
    swarm = Swarm(nodes=2)
    simulate(core_suspects.lasting_suspects, seed, workflows=[core_suspects], swarm=swarm).check()
