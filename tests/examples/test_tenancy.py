"""The tenancy, as whoever runs it sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tenants_pay_by_the_code_that_fits_them() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.tenancy"],
        env=environment | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [line for line in lines if line.startswith("Ann pays")] == [
        "Ann pays 700, run 1, collect:1",
        "Ann pays 60, run 2, collect:1",
        "Ann pays 700, run 2, collect:2",
        "Ann pays 60, run 3, collect:1",
        "Ann pays 700, run 3, collect:2",
    ]
    assert "Ben pays 2250, run 1, collect:1" in lines
    assert lines[-2:] == ["Ann moves out", "2250 from Ben, who moves out"]
