"""What Perdure changes in the whole OS process is what its page says, from when to when; nothing else is touched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase

import pytest

from tests.house.page import DOCS, rows, spans
from tests.source import ROOT, SOURCE

FILTER = ["the loggers below perdure"]
WHILE_IT_WORKS = ["the collector's threshold", "threads", "what the collector leaves out"]
ELSEWHERE = {"threading._start_new_thread", "time.clock_gettime", "time.clock_gettime_ns", "os.getrandom"}
"""What not every system or version has."""


@pytest.fixture(scope="module")
def stages() -> dict[str, list[str]]:
    """What is changed in a program at each stage of its life."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.runtime.alterations"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert said.returncode == 0, said.stderr
    told: dict[str, list[str]] = json.loads(said.stdout)
    return told


def page() -> str:
    return (DOCS / "PROCESS-WIDE.md").read_text(encoding="utf-8")


def replaced() -> list[str]:
    """The names that the page says are replaced for good."""
    part = page().partition("## From the first process that a worker runs")[2]
    return [name for row in rows(part, "what") for name in spans(row[0])]


def test_to_import_it_or_to_start_processes_from_outside_changes_the_filters_of_its_own_loggers(
    stages: dict[str, list[str]],
) -> None:
    assert stages["imported"] == FILTER
    assert stages["client"] == [*FILTER, "threads"]
    assert stages["client closed"] == FILTER


def test_what_a_worker_sets_for_itself_ends_with_it(stages: dict[str, list[str]]) -> None:
    working = {*stages["worker"]} - {"the switch interval"}  # it is another one just while SQLite is called
    settings = [name for name in working if " " in name or "." not in name]
    assert sorted(settings) == sorted([*FILTER, *WHILE_IT_WORKS])
    assert sorted(working - {*stages["worker closed"]}) == WHILE_IT_WORKS
    assert {*stages["worker closed"]} <= {*stages["worker"]}


def test_what_stays_replaced_for_good_is_on_the_page_and_nothing_else_is(stages: dict[str, list[str]]) -> None:
    names = [name for name in stages["worker closed"] if name not in FILTER]
    assert len(names) > 50
    assert [name for name in names if not any(fnmatchcase(name, told) for told in replaced())] == []
    unfounded = [told for told in replaced() if not any(fnmatchcase(name, told) for name in names)]
    assert {*unfounded} <= ELSEWHERE


def test_what_the_program_has_from_its_worker_is_named_on_the_page() -> None:
    told = {row[0] for part in re.split(r"^## ", page(), flags=re.MULTILINE) for row in _rows(part)}
    assert {*WHILE_IT_WORKS} <= told and any(what.startswith("the loggers below `perdure`") for what in told)


def _rows(part: str) -> list[list[str]]:
    return rows(part, "what") if "\n| what |" in part else []
