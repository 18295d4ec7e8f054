"""The till, as whoever runs it sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_till_killed_in_its_transaction_has_sold_and_billed_what_it_committed() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.till"],
        env=environment | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "sold: a book",
        "billed: a bill for a book",
        "processes: 1",
        "sold again: a bill for a lamp",
    ]
