"""Campaigns: many histories are counted together, on one core or on two, and the command line repeats one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.simulator import campaign
from perdure.testing.simulator.__main__ import main
from perdure.testing.simulator.campaign import explore
from tests.simulator.campaign import APART
from tests.simulator.form import seeds

PAIRS = "tests.simulator.core_pairs:ten_pairs"
EXAMPLES = {"core_pairs"}
"""Scenarios by which campaigns themselves are tried."""
NAIVE = "tests.simulator.core_pairs:naive"
SEEDS = seeds(3, 6)


@pytest.mark.long
def test_a_campaign_counts_the_same_on_one_core_and_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "AT_ONCE", 2)  # else one core is given all of so few
    one, two = explore(PAIRS, SEEDS, apart=True), explore(PAIRS, SEEDS, cores=2, apart=True)
    assert one.failed == two.failed == []
    assert (one.histories, one.calls, one.faults, one.events) == (two.histories, two.calls, two.faults, two.events)
    assert any(f"{len(SEEDS)} histories" in line for line in one.lines())


def test_a_campaign_leaves_out_no_scenario_apart() -> None:
    played = {name.partition(":")[0] for name in APART}
    assert {path.stem for path in Path(__file__).parent.glob("core_*.py")} == played | EXAMPLES


@pytest.mark.long
def test_the_command_line_names_the_seed_that_repeats_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([NAIVE, "COUNT=2", "FROM=7"]) == 1
    repeat = capsys.readouterr().out.splitlines()[-1].split()
    assert repeat[:5] == ["repeat", "one:", "python", "-m", "perdure.testing.simulator"]

    saved = tmp_path / "choices.json"
    assert main([*repeat[5:], f"SAVE={saved}"]) == 1
    told = capsys.readouterr().out
    assert "called_once: " in told and "claims pair" in told

    assert main([*repeat[5:], f"CHOICES={saved}"]) == 1


def test_the_command_line_says_what_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "SEED=17" in capsys.readouterr().out
    assert main([PAIRS, "SEED=3"]) == 0
    assert "no law was broken" in capsys.readouterr().out
