"""Progress that running steps show, and calls that are answered meanwhile, in virtual time and any weather."""

from __future__ import annotations

from tests.simulator.core_progress import backup, backups
from tests.simulator.form import play_until, seeds


def test_what_is_told_of_a_running_backup_is_what_its_history_holds_in_any_weather() -> None:
    play_until("a part was copied once more", 5, backups, [backup], seeds(20, 40, first=18), some=4)
