"""The engine of another commit: its source, taken out of the history of this repository."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from bench.contestant import ROOT


def source_of(commit: str, folder: Path) -> Path | None:
    """The packages of a commit as they were, unpacked in this folder; None if the history here does not have it."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        trusted = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # it came with Python 3.11.4
        packed.extractall(folder, **trusted)
    return folder / "src"
