"""What the tests of the examples share: an example is run as whoever reads it would, and says what it did."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.prepared import prepared
from tests.source import PYTHONPATH, ROOT

Example = Callable[..., list[str]]


@pytest.fixture
def example() -> Example:
    """Runs an example of that name to its end, which must be a good one; the answer is the lines that it printed."""

    def run(name: str, *words: str) -> list[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        done = subprocess.run(
            [*prepared().command, "-m", f"examples.{name}", *words],
            env=environment | {"PYTHONPATH": PYTHONPATH},
            cwd=ROOT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run
