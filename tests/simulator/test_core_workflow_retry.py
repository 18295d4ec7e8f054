"""The retry of a whole workflow in virtual time: each attempt counts once, whoever makes it; callers hear of one."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_workflow_retry
from tests.simulator.core_workflow_retry import errands
from tests.simulator.form import seeds

ROUGH = Swarm(nodes=3, latencies=(0.0005, 0.05), blows={"kill": 0.1, "pause": 0.1, "stop": 0.05}, storm_seconds=10.0)


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_a_workflow_is_tried_as_often_as_its_policy_says_whatever_happens(seed: int) -> None:
    simulate(errands, seed, workflows=[core_workflow_retry], swarm=ROUGH if seed % 2 else None).check()
