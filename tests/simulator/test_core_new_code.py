"""Deployments of a machine's class in virtual time: whoever runs it in between, no field is lost."""

from __future__ import annotations

from perdure.testing.simulator import Swarm, simulate
from tests.simulator.core_new_code import Plain, deployments
from tests.simulator.form import seeds

ROUGH = Swarm(
    nodes=2,
    latencies=(0.0005, 0.05),
    faults={"failed before": 0.05, "failed after": 0.1, "died before": 0.01, "died after": 0.02},
    blows={"kill": 0.05, "pause": 0.05, "stop": 0.05},
    storm_seconds=10.0,
)


def test_a_machine_whose_class_changes_and_changes_back_keeps_every_field() -> None:
    left = 0
    for seed in seeds(4, 24):
        history = simulate(deployments, seed, workflows=[Plain.begun], swarm=ROUGH if seed % 2 else None).check()
        left += history.probes["a process was left to newer workers"]
    assert left, "no old worker has met fields of a newer form"
