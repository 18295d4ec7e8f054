"""The simulation: whole clusters in virtual time, drawn from a seed, judged by the laws and by the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import json

from perdure.testing.simulator import simulate
from tests.simulator import probes
from tests.simulator.campaign import SCENE, Kept
from tests.simulator.form import WHOLE, seeds
from tests.simulator.scene import scene

SEEDS = Path(__file__).parent / "seeds"


@pytest.mark.parametrize("kept", sorted(SEEDS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_once_found_does_not_come_back(kept: Path) -> None:
    case = json.decode(kept.read_bytes(), type=Kept)
    simulate(scene, case.seed, choices=case.choices).check()


@pytest.mark.parametrize("seed", seeds(5, 40))
def test_whatever_happens_to_a_cluster_no_law_is_broken(seed: int) -> None:
    simulate(scene, seed).check()  # `make sim` plays a thousand more, `make sim-long` as many as one likes


def test_where_the_clock_stands_still_since_it_was_set_back_nobody_asks_a_thousand_times_a_second() -> None:
    simulate(scene, 2_004_103, most=60_000).check()


@pytest.mark.parametrize("seed", [17, 3, 2026] if WHOLE else [17])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    one, other = simulate(scene, seed), simulate(scene, seed)
    assert one.digest() == other.digest()
    assert one.choices == other.choices


def test_recorded_choices_repeat_their_history() -> None:
    one = simulate(scene, 5)
    assert simulate(scene, 5, choices=one.choices).digest() == one.digest()


def test_the_boring_history_is_one_step_on_one_node() -> None:
    history = simulate(scene, 0, choices={}).check()
    assert history.events == {"step_completed": 1, "completed": 1}


def test_there_are_at_least_thirty_probes_each_with_a_name_of_its_own() -> None:
    assert len(probes.ALL) == len(probes.COUNTED) + len(probes.TOLD) + len(probes.BETWEEN) >= 30


def test_the_scene_has_the_name_by_which_campaigns_find_it() -> None:
    assert f"{scene.__module__}:{scene.__name__}" == SCENE
