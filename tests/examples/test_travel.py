"""The travel agency: whatever becomes of a journey, only those who travel keep their bookings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_only_those_who_travel_keep_their_bookings(store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.travel", store_url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "Bob:  failed, 2 bookings given back",
        "Ann:  had a good time",
        "Cleo: had a good time",
        "Dan:  cancelled, 4 bookings given back",
        "Eve:  UndoFailed, 4 bookings not given back yet",
        "Eve:  cancelled, 4 bookings given back",
        "booked at the end: grand hotel for Ann, insurance of a room for Ann, night train for Ann, "
        "night train for Cleo, tent for Cleo, train back for Ann, train back for Cleo",
    ], done.stderr
