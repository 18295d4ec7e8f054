"""The demonstration from an installed wheel, in a folder whose files have the names of libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = ("queue", "signal", "table", "json", "asyncio", "msgspec")


@pytest.mark.timeout(120)
def test_the_demonstration_of_an_installed_package_runs_beside_files_with_the_names_of_libraries(
    tmp_path: Path,
) -> None:
    source, installed, here = tmp_path / "source", tmp_path / "installed", tmp_path / "here"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "src", "examples"):  # so that nothing is written into ROOT
        (source / name).symlink_to(ROOT / name)
    install = ["install", "--quiet", "--no-deps", "--disable-pip-version-check"]  # by way of a wheel
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", str(installed), str(source)], check=True)
    here.mkdir()
    for name in LIBRARIES:
        (here / f"{name}.py").write_text("raise ImportError('this is no library')\n")
    ran = subprocess.run(
        [installed / "bin" / "perdure", "demo", "--orders", "40"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(installed), "PERDURE_URL": "", "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "none of the 40 orders was lost" in " ".join(ran.stdout.split())
