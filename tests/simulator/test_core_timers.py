"""Timers, side by side and in any weather: none is late without a reason."""

from __future__ import annotations

from tests.simulator.core_timers import alarms, clocks
from tests.simulator.form import play_until, seeds


def test_every_timer_fires_soon_after_its_time_where_nothing_has_struck_its_workers() -> None:
    play_until("a timer has fired in peace", 10, alarms, [clocks], seeds(30, 60), some=4)
