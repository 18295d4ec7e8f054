"""The runs of ``make test`` and ``make quick`` name files that exist: what has moved is still run where it was."""

from __future__ import annotations

from tests.house.tree import ROOT
from tests.quick import RUNS, SLOW
from tests.side_by_side import APART

TESTS = ROOT / "tests"


def test_what_the_runs_name_exists() -> None:
    named = [*sum(APART, ()), *SLOW, *(place for places in RUNS.values() for place in places)]
    assert len(named) > 20
    assert [name for name in named if not (TESTS / name).exists()] == []
