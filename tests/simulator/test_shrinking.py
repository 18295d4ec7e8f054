"""What a broken engine does in a storm shrinks, within a minute, to so few decisions that a person can read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulator.broken.chase import ROOT
from tests.simulator.broken.defect import plant, read
from tests.simulator.form import WHOLE

DECISIONS = 20
"""Each begins with a seed under which it breaks a law soon: histories that turn in a circle shrink as well, slowly."""
BROKEN = [
    ("every attempt of a step has a key of its own", "8"),
    ("received messages are not marked as received", "2"),
]


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize(("name", "first"), BROKEN if WHOLE else BROKEN[:1])
def test_the_history_of_a_broken_engine_shrinks_to_twenty_decisions(name: str, first: str, tmp_path: Path) -> None:
    [defect] = [defect for defect in read() if defect.name == name]
    path = os.pathsep.join((str(plant(defect, tmp_path)), str(ROOT)))
    shortened = subprocess.run(
        [sys.executable, "-m", "tests.simulator.broken.shorten", first, "20"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(shortened.stdout.splitlines()[-1])
    assert told["has"] <= DECISIONS < told["had"]
