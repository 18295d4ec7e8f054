"""A blocking engine and the fork of a server that makes its workers from one parent."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.source import PYTHONPATH, ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def forked(case: str, url: str) -> list[str]:
    """What the program says that forks."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.portal.forking", case, url],
        env={**os.environ, "PYTHONPATH": PYTHONPATH}, cwd=ROOT,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_what_was_open_before_a_fork_is_refused_in_the_child_and_goes_on_in_the_parent(store_url: str) -> None:
    said = forked("before", store_url)
    assert said[:3] == ["this engine was open at a fork, which no engine survives; open it only after the fork"] * 3
    assert said[3:] == ["child: 0", "receipt A-1 by Ann"]


def test_one_that_is_not_open_yet_opens_in_each_child_by_itself(store_url: str) -> None:
    said = forked("after", store_url)
    assert said == ["A-1", "child: 0", "A-2", "child: 0", "{'order': {'running': 3}}"]
