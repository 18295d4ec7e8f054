"""The parcel service: what people order is done, and done once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_people_answer_for_a_machine_hold_a_parcel_and_send_one_again(store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.parcels", store_url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "books: StepError, for the scale does not answer",
        "books: books was driven, tour 1: 3.0 kg, label of books",
        "cake: it is held: by customs because: what is in it?; `perdure resume` lets it go on",
        "cake: cake was driven, tour 2: 2.5 kg, label of cake",
        "cake: cake was driven, tour 3: 2.5 kg, label of cake",
        "cake: its first run can still be read, it ended as completed",
    ], done.stderr
