"""Quarantine: who is a suspect, who may run together, and how each death halves the company (rule 13)."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.kernel import quarantine, transition
from perdure.kernel.diagnosis import next_mover
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Offer, WorkerRow
from perdure.limits import ALONE_DEATHS, QUARANTINE_PROCESSES, SUSPECT_DEATHS

NOW = 1_000_000


def in_hand(**fields: Any) -> Process:
    return Process(b"p" * 16, "order", None, b"{}", owner=b"w" * 16, due_at=NOW, **fields)


def freed(process: Process, held: int) -> Process:
    commit = transition.orphaned(process, now=NOW, died=True, worker="w", idle_at=NOW + 9, held=held)
    return commit.after


def test_two_thousand_that_died_twice_with_their_worker_become_groups_of_the_largest_company() -> None:
    suspect = freed(freed(in_hand(), 2_000), 2_000)
    assert quarantine.is_suspect(suspect) and quarantine.company(suspect) == QUARANTINE_PROCESSES


def test_each_death_halves_the_company_until_the_suspect_is_alone() -> None:
    process, companies = in_hand(deaths=SUSPECT_DEATHS - 1), []
    held = 2_000
    for _ in range(9):
        process = freed(process, held)
        held = quarantine.company(process)
        companies.append(held)
    assert companies == [500, 250, 125, 62, 31, 15, 7, 3, 1]
    assert process.alone_deaths == 0


def test_few_that_were_in_hand_are_halved_as_few() -> None:
    assert [quarantine.company(freed(in_hand(deaths=1), held)) for held in (1, 2, 3, 4, 9)] == [1, 1, 1, 2, 4]
    grouped = in_hand(deaths=2, alone_deaths=-250)
    assert [quarantine.company(freed(grouped, held)) for held in (1, 4, 250, 9_999)] == [1, 2, 125, 125]


def test_deaths_in_company_never_park_and_those_alone_do() -> None:
    process = in_hand(deaths=SUSPECT_DEATHS, alone_deaths=-500)
    while quarantine.company(process) > 1:
        process = freed(process, 500)
        assert process.status is Status.RUNNING
    for death in range(1, ALONE_DEATHS + 1):
        process = freed(process, 1)
        assert (process.alone_deaths, process.status is Status.BROKEN) == (death, death == ALONE_DEATHS)


@pytest.mark.parametrize(
    ("fields", "waited"),
    [
        ({"awaiting": "child bake"}, True),
        ({"awaiting": "task mail, signal pay"}, True),
        ({"awaiting": None}, False),
        ({"awaiting": "child bake", "inbox": 1}, False),
        ({"awaiting": "child bake, timer"}, False),
        ({"awaiting": "step explode"}, False),
        ({"awaiting": "undo pay"}, False),
        ({"awaiting": "child bake, step explode"}, False),
        ({"awaiting": "child a, child b, ch…"}, False),
    ],
)
def test_who_only_waited_in_hand_is_not_counted_at_a_death(fields: dict[str, Any], waited: bool) -> None:
    process = in_hand(deaths=1, **fields)
    assert quarantine.only_waited(process) is waited
    assert freed(process, 5).deaths == (1 if waited else 2)
    assert sum(quarantine.held_by([process]).values()) == (0 if waited else 1)


def test_who_has_died_with_no_worker_yet_does_not_make_a_group_larger() -> None:
    rows = [in_hand(), in_hand(deaths=1), in_hand(deaths=2, alone_deaths=-2)]
    assert quarantine.held_by(rows) == {b"w" * 16: 2}


def test_the_first_suspect_says_who_runs_together() -> None:
    assert quarantine.together([]) == []
    assert quarantine.together([0, 0, -5]) == [0]
    assert quarantine.together([-2, 0, -2, -2]) == [0, 2]
    assert quarantine.together([-9, -9]) == [0, 1]


def test_people_are_told_that_a_process_is_a_suspect_and_with_how_many_it_runs() -> None:
    due = Process(b"p" * 16, "order", None, b"{}", due_at=NOW, deaths=2, alone_deaths=-50)
    offer = Offer(frozenset({("order", "")})).encode()
    told = next_mover(due, NOW, {b"w" * 16: WorkerRow(b"w" * 16, "here:1", offer)}).text
    assert "a suspect (held at 2 deaths of its worker; runs with up to 49 others)" in told
    assert "waits for a place in quarantine" in told
    assert "no live worker hosts" in next_mover(due, NOW, {}).text
    alone = next_mover(in_hand(deaths=4, alone_deaths=1), NOW - 1, {}).text
    assert "held at 5 deaths" in alone and "runs alone" in alone and "in quarantine" in alone
    assert "quarantine" not in next_mover(in_hand(deaths=1), NOW - 1, {}).text
