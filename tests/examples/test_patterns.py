"""The patterns: evil ones are killed at their deadline, and the other customers have their answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_evil_patterns_are_killed_and_the_other_customers_are_served(store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.patterns", store_url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "a+        1 found",
        "[!?]      1 found",
        "(a+)+$    takes too long",
        "(a|a)*$   takes too long",
        "a{3}      13 found",
        "cells killed: 2",
    ], done.stderr
