"""The gate: engines that are broken on purpose, each of which the simulated histories must notice."""

from __future__ import annotations

import pytest

from tests.simulator.broken import DEFECTS
from tests.simulator.broken.__main__ import hunted
from tests.simulator.broken.defect import misfits

QUICK = (
    "a commit is taken whatever token and version are",
    "a claim does not make a new token",
    "a timer may be recorded before its time",
    "received messages are not marked as received",
)
"""Defects that the first few histories notice: the others take minutes, and ``make gate``."""


def test_every_defect_still_fits_the_engine_it_is_to_break() -> None:
    assert [misfit for defect in DEFECTS for misfit in misfits(defect)] == []


def test_there_is_a_defect_for_every_rule_that_histories_can_notice() -> None:
    rules = {defect.rule for defect in DEFECTS}
    assert len(DEFECTS) >= 30 and len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert rules >= {"1", "3", "4", "5", "10", "11", "12", "13", "14", "17", "18", "19", "21", "23", "24"}


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_engine_is_noticed(name: str) -> None:
    [defect] = [defect for defect in DEFECTS if defect.name == name]
    assert hunted(defect, first=0, most=40)["law"]
