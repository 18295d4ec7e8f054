"""Rows that are damaged by hand are found and mended by a check run, in any weather."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import simulate
from tests.simulator import core_checks
from tests.simulator.form import enough


def test_each_planted_fault_is_found_and_mended_or_parked_and_nothing_else_is_touched() -> None:
    probes: Counter[str] = Counter()
    mended = {f"mended: {name}" for name in core_checks.DAMAGES}
    for seed in range(16):
        probes += simulate(core_checks.repairs, seed, workflows=[core_checks]).check().probes
        if enough(seed, 6) and probes.keys() >= mended:
            break
    assert probes.keys() >= mended
