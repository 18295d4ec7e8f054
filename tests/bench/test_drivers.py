"""Our own drivers measure what their tables show: on both stores, by OS processes of their own, at a small scale."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from bench import (
    backlog,
    contestant,
    old_machine,
    ours_machines,
    ours_wakes,
    payload,
    recovery,
    repair,
    several,
    workload,
)
from bench.contestant import Contestant
from bench.database import Cluster
from bench.driver import Task, note_effect
from bench.seat import Seat
from tests.conftest import NO_FSYNC

HISTORIES = (5, 40, 260)  # the last is long enough for a worker to keep the process for a while


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of the bench."""
    with Cluster(NO_FSYNC) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def ours(request: pytest.FixtureRequest) -> Contestant:
    """Our engine on each store."""
    return contestant.ALL["ours" if request.param == "postgres" else "ours-sqlite"]


on_sqlite = pytest.mark.parametrize("ours", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("ours", ["postgres"], indirect=True)
"""For drivers that do the same on both stores; `make bench` runs each of them on both."""


def figures(name: str) -> set[str]:
    """What the table of a workload shows."""
    return {figure.key for figure in workload.ALL[name].figures}


@on_sqlite
@pytest.mark.long
def test_wakes_are_measured_for_each_length_of_history(ours: Contestant, cluster: Cluster) -> None:
    measured = workload.wakes(ours, cluster, 2, HISTORIES)
    assert measured["wakes"] == len(HISTORIES) * 2 * ours_wakes.ROUNDS
    assert figures("w15") <= set(measured)
    assert measured["ratio"] == measured["long_ms"] / measured["short_ms"]
    assert min(measured[f"{size}_ms"] for size in ours_wakes.SIZES) > 0


@on_postgres
def test_steps_with_large_results_are_measured_for_each_size(ours: Contestant, cluster: Cluster) -> None:
    measured = workload.ALL["w16"].measure(ours, cluster, 2)
    assert figures("w16") == set(measured)
    assert min(measured.values()) > 0


@pytest.mark.long
def test_many_processes_with_a_history_are_woken(ours: Contestant, cluster: Cluster) -> None:
    with Seat(ours, cluster) as seat:
        measured = backlog.measure_wakes(seat, 30, 40)
    assert figures("w19") <= set(measured)
    assert measured["n"] == 31, "the clones, and the one that they were cloned from"


@on_sqlite
def test_starting_many_is_measured_against_a_closed_loop(ours: Contestant, cluster: Cluster) -> None:
    measured = workload.ALL["w18"].measure(ours, cluster, 60)
    assert figures("w18") <= set(measured)
    assert measured["ratio"] == measured["processes_per_s"] / measured["loop_per_s"]


@pytest.mark.long
def test_calls_to_machines_are_measured(ours: Contestant, cluster: Cluster) -> None:
    measured = workload.ALL["w20"].measure(ours, cluster, 100)
    assert figures("w20") <= set(measured)
    assert measured["behind"] == 100 * old_machine.TIMES, "the old one has answered as many calls as its row counts"
    assert min(measured[figure] for figure in figures("w20")) > 0


@on_sqlite
def test_a_call_to_a_machine_is_measured_alone(ours: Contestant, cluster: Cluster) -> None:
    assert figures("w23") <= set(workload.ALL["w23"].measure(ours, cluster, 20))


def test_drivers_import_compiled_code_whatever_the_environment_of_the_bench_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for one in contestant.ALL.values():
        assert "PYTHONDONTWRITEBYTECODE" not in one.environment() and "PATH" in one.environment()


def test_the_schedules_of_a_full_run_are_due_long_before_it_has_to_answer() -> None:
    full = max(one.sizes["w21"] for one in contestant.ALL.values() if "w21" in one.sizes)
    assert full / ours_machines.PUT_PER_SECOND + ours_machines.LEAD_SECONDS < workload.W21_SECONDS / 2


@on_postgres
def test_schedules_that_are_due_at_one_instant_are_measured(ours: Contestant, cluster: Cluster) -> None:
    measured = workload.ALL["w21"].measure(ours, cluster, 20)
    assert figures("w21") <= set(measured)
    assert measured["occurrences_per_s"] > 0 and measured["last_s"] >= 0


@pytest.mark.long
def test_the_repair_of_many_by_one_operation_is_measured(
    ours: Contestant, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "QUIET_SECONDS", 0.5)
    measured = workload.ALL["w22"].measure(ours, cluster, 1_500)
    assert figures("w22") <= set(measured)
    assert (measured["verified"], measured["miscounted"], measured["not_resumed"]) == (1_500, 0, 0)
    assert 0 < measured["before_kill"] < 1_500


@pytest.mark.long
def test_two_engines_are_measured_against_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "LEAD_SECONDS", 1.0)
    measured = workload.ALL["w17"].measure(contestant.ALL["ours"], cluster, 60)
    assert figures("w17") <= set(measured)
    assert measured["ten_steps_ratio"] == measured["ten_steps_per_s_2"] / measured["ten_steps_per_s_1"]


@on_sqlite
@pytest.mark.long
def test_a_fresh_worker_that_is_killed_has_figures_of_its_own(ours: Contestant, cluster: Cluster) -> None:
    with Seat(ours, cluster) as seat:
        seat.prepare()
        measured = recovery.measure_fresh(seat, 6)
    assert {key for key in figures("w7") if key.startswith("fresh_")} <= set(measured)
    assert (measured["fresh_missing"], measured["fresh_unfinished"]) == (0, 0)


def test_the_longest_history_is_compared_with_the_shortest() -> None:
    groups = [ours_wakes.Patients(events, {}, [events / 1000, 9.0, 0.0], [events / 500]) for events in HISTORIES]
    answer = ours_wakes.answer(groups)
    assert (answer["short_ms"], answer["long_ms"], answer["middle_cpu_ms"]) == (5.0, 260.0, 80.0)
    assert (answer["ratio"], answer["ratio_cpu"], answer["wakes"]) == (52.0, 52.0, 9)


def test_a_wake_is_read_from_the_effect_that_its_process_has_noted(tmp_path: object) -> None:
    task = Task(scratch=str(tmp_path))
    assert ours_wakes.noted(task.effects, 1, 2) is None
    note_effect(task.effects, 2, 1)
    assert ours_wakes.noted(task.effects, 1, 2) is None
    note_effect(task.effects, 1, 2)
    assert ours_wakes.noted(task.effects, 1, 2)


@pytest.mark.long
def test_a_long_text_has_its_size_and_cannot_be_made_much_shorter() -> None:
    for size in (1_000, 100_000):
        text = payload.text(size).encode()
        assert len(text) == size
        assert len(zlib.compress(text, 9)) > 0.7 * size
