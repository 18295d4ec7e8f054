"""Alternated pairs: what a row of the comparison says of two commits."""

from __future__ import annotations

import pytest

from bench import __main__ as command
from bench.compare import compare, row
from bench.instructions import counted
from bench.instructions import row as row_of_instructions
from bench.workload import Figure

RATE = Figure("processes_per_s", "processes/s")


def runs(*values: float) -> list[dict[str, float]]:
    return [{"processes_per_s": value} for value in values]


def test_a_row_has_both_medians_and_the_ratios_of_its_pairs() -> None:
    said = row("w1", "Perdure, SQLite", RATE, runs(100, 50, 200), runs(110, 60, 200))
    assert said == "| w1 Perdure, SQLite | processes/s | 100 | 110 | 1.10 | 1.00 to 1.20 |"


def test_a_pair_of_which_one_did_not_end_is_left_out_and_a_row_without_pairs_says_why() -> None:
    failed = {"problem": "no answer within 180 s\nthe last lines"}
    assert row("w1", "x", RATE, [*runs(100), failed], runs(150, 1)).endswith("| 100 | 150 | 1.50 | 1.50 to 1.50 |")
    assert row("w1", "x", RATE, [failed], runs(1)) == "| w1 x | processes/s | no answer within 180 s | | | |"


def test_a_commit_that_is_not_there_is_told_with_what_to_do() -> None:
    with pytest.raises(SystemExit, match="git log"):
        compare("no-such-commit", ("w1",), (), 1)


def test_a_comparison_without_a_commit_or_with_an_unknown_workload_says_how_it_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["compare"], ["compare", "HEAD", "w99"]):
        monkeypatch.setattr("sys.argv", ["bench", *words])
        assert command.main() == 2
        assert "compare COMMIT [w1 w2" in capsys.readouterr().out


def test_the_instructions_of_a_process_are_a_row_of_both_commits() -> None:
    assert row_of_instructions("w1", "Perdure, SQLite", 2_000_000, 2_100_000) == (
        "| w1 Perdure, SQLite | 2,000 | 2,100 | 1.050 |"
    )
    assert counted("==7== Cachegrind\n==7== \n==7== I   refs:      1,234,567\n") == 1_234_567
    with pytest.raises(SystemExit, match="did not count:\nno such program"):
        counted("no such program")


def test_a_count_without_a_commit_or_of_another_workload_says_how_it_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["instructions"], ["instructions", "HEAD", "w3"]):
        monkeypatch.setattr("sys.argv", ["bench", *words])
        assert command.main() == 2
        assert "instructions COMMIT [w1 w2]" in capsys.readouterr().out
