"""The README keeps its word: its example runs as it stands, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.house.page import blocks
from tests.house.tree import ROOT


def example() -> str:
    (code,) = (
        content
        for language, content in blocks((ROOT / "README.md").read_text(encoding="utf-8"))
        if language == "python"
    )
    return code


def test_the_example_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(example(), encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "shop.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"},
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == "A-17 is on its way\nreceipt for A-17: 1299 cents, approved by Ada\n"


def test_the_example_of_the_readme_imports_the_front_door_alone() -> None:
    imports = [line for line in example().splitlines() if line.startswith(("import", "from"))]
    assert imports[1:] == ["from perdure import Engine, Retry, receive, step, workflow"]
