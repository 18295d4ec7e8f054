"""The clinic, as whoever runs it sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_clinic_s_patients_are_read_only_by_who_has_a_key() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.clinic"],
        env=environment | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "who has the key reads {'patient': 'Ann Smith', 'waits for': 'the doctor'}",
        "who has not finds a name nowhere; 1 picture lies outside",
        "started again as the same one",
        "under the new key Ann Smith is fit as a fiddle, says Dr. Jones",
    ]
