"""What mypy sees of Perdure's interface; ``make types`` asks pyright too."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_mypy_finds_each_wrong_call_and_knows_the_type_of_each_right_one(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"  # of the tests' own folder mypy asks less
    shutil.copy(Path(__file__).with_name("program.py"), program)
    # In an OS process of its own: mypy leaves a raised threshold of the collector and a large heap behind.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.stderr == ""
    assert [line for line in checked.stdout.splitlines() if "program.py:" in line] == []
    assert "Found" in checked.stdout or "Success" in checked.stdout
