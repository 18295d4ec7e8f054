"""A backup is put back under simulated workers: what it lacks is told and held, and all ends well."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import simulate
from tests.simulator.core_failover import payment
from tests.simulator.core_restore import restoring
from tests.simulator.form import enough

MET = {
    "a process was set back", "a process that was set back was held", "a process was lost and started again",
}  # fmt: skip
"""What must have happened in some of its histories."""


def test_what_a_backup_lacks_is_told_and_held_and_all_ends_well() -> None:
    probes: Counter[str] = Counter()
    for seed in range(15):
        probes += simulate(restoring, seed, workflows=[payment]).check().probes
        if enough(seed, 5) and probes.keys() >= MET:
            break
    assert probes.keys() >= MET
