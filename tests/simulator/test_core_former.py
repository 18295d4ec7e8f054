"""Former runs are pruned behind processes that go on for ever, and nothing that is still needed goes with them."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import simulate
from tests.simulator.core_former import tenancies, tenancy
from tests.simulator.form import enough


def test_processes_go_on_exactly_while_their_former_runs_are_pruned_in_any_weather() -> None:
    probes: Counter[str] = Counter()
    for seed in range(15):
        probes += simulate(tenancies, seed, workflows=[tenancy]).check().probes
        if enough(seed, 5) and probes["a former run was pruned"] > 30:
            break
    assert probes["a former run was pruned"] > 30
