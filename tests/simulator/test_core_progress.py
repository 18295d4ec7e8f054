"""Progress that running steps show, and calls that are answered meanwhile, in virtual time and any weather."""

from __future__ import annotations

from collections import Counter

from perdure.testing.simulator import simulate
from tests.simulator.core_progress import backup, backups
from tests.simulator.form import enough, seeds


def test_what_is_told_of_a_running_backup_is_what_its_history_holds_in_any_weather() -> None:
    probes: Counter[str] = Counter()
    for seed in seeds(10, 40):
        probes += simulate(backups, seed, workflows=[backup]).check().probes
        if enough(seed, 4) and probes["a part was copied once more"] > 5:
            break
    assert probes["a part was copied once more"] > 5
