"""The benchmarks' tables: what stands in bench/README.md is what was measured, and verdicts follow the medians."""

from __future__ import annotations

from bench import report, target, workload


def entry(*values: float | None, figure: str = "processes_per_s") -> dict[str, object]:
    """What is kept of one contestant: a run for each value, the limits beside it."""
    runs = [{"problem": "did not end"} if value is None else {figure: value} for value in values]
    return {"stamp": "2026-01-01", "runs": runs, "limits": [{"pg_commit_per_s": 100.0} for _ in runs]}


def test_the_tables_in_the_readme_are_what_the_results_say() -> None:
    assert report.whole() in report.README.read_text()


def test_a_figure_is_the_median_of_the_runs_that_ended() -> None:
    assert report.middle(entry(1, 9, 5), "processes_per_s") == 5
    assert report.middle(entry(1, None, 5), "processes_per_s") == 3
    assert report.middle(entry(None), "processes_per_s") is None
    assert report.middle(entry(1, 2), "limit:pg_commit_per_s") == 100


def test_every_target_names_a_workload_and_a_contestant_that_exist() -> None:
    asked: set[tuple[str, str]] = set()

    def get(name: str, who: str, figure: str) -> float:
        asked.add((name, who))
        return 1.0

    for one in target.TARGETS:
        assert one.reading(get) is not None
        assert one.limit(get) is not None
    assert {name for name, _ in asked} == set(workload.ALL)


def test_a_target_without_a_measurement_is_neither_reached_nor_missed() -> None:
    for one in target.TARGETS:
        assert one.reading(lambda *_: None) is None


def test_few_runs_or_a_busy_machine_make_a_figure_provisional() -> None:
    assert report.provisional(entry(1, 2))
    assert report.provisional(entry(1, 2, None))
    assert not report.provisional(entry(1, 2, 3))
    busy = entry(1, 2, 3)
    busy["runs"] = [{"processes_per_s": 1.0, "load_average": 4.0}] * 3
    assert report.provisional(busy)
