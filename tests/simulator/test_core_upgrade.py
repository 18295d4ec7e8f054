"""Damaged rows and rolling upgrades in histories: a bad row hurts only itself, newer ones are left to newer workers."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import Swarm, simulate
from tests.simulator import core_damage, core_upgrade
from tests.simulator.form import WHOLE, enough, seeds


def test_a_row_that_is_damaged_while_workers_run_hurts_only_its_own_process_in_any_weather() -> None:
    probes: Counter[str] = Counter()
    for seed in (*seeds(10, 32), 58):  # the last one damages what a worker has in memory
        probes += simulate(core_damage.damaging, seed, workflows=[core_damage]).check().probes
    assert probes["a damaged process was parked"] > (20 if WHOLE else 5)
    assert probes["a process that was damaged in nobody's hand was parked"] > (10 if WHOLE else 2)
    assert probes["a damaged process ended from memory"] > 0


def test_old_and_newer_workers_bring_everything_to_its_end_together_in_any_weather() -> None:
    probes: Counter[str] = Counter()
    for seed in range(40):
        probes += simulate(core_upgrade.rolling, seed, workflows=[core_upgrade]).check().probes
        if enough(seed, 5) and probes["a process was left to newer workers"] > 5:
            break
    assert probes["a newer worker wrote an unknown type"] > (50 if WHOLE else 5)
    assert probes["a process was left to newer workers"] > 5


def test_what_an_old_worker_leaves_to_newer_ones_it_does_not_take_again_before_them() -> None:
    for seed in seeds(3, 10):
        history = simulate(core_upgrade.rolling, seed, workflows=[core_upgrade], swarm=Swarm(nodes=3)).check()
        assert history.seconds < 60
