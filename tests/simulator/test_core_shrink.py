"""Shrinking: a failing history becomes a short one that people can read, and its recorded choices repeat it."""

from __future__ import annotations

from itertools import count

import pytest

from perdure.testing.simulator import History, simulate
from perdure.testing.simulator.choice import Record
from perdure.testing.simulator.shrink import shrink
from tests.simulator.core_pairs import naive, pair, ten_pairs
from tests.simulator.form import WHOLE

REPETITIONS = 300
"""Some 80 are needed, which take 3 seconds on a quiet machine; `shrink` itself gives up after a minute."""


def played(seed: int, choices: Record | None = None, most: int | None = None) -> History:
    return simulate(naive, seed, workflows=[pair], choices=choices, most=most)


def failing() -> History:
    for seed in range(28 if WHOLE else 8, 200):  # these begin where one shrinks sooner than others
        history = played(seed)
        if history.violation is not None and history.decisions > (100 if WHOLE else 50):
            return history
    raise AssertionError("no history in which a step is called twice")


@pytest.mark.long
def test_a_failing_history_shrinks_to_a_few_decisions_in_some_hundred_repetitions() -> None:
    failed = failing()
    repetitions = count()

    def repeat(choices: Record, most: int) -> History:
        assert next(repetitions) < REPETITIONS
        return played(failed.seed, choices, most)

    smallest = shrink(failed, repeat, seconds=600)
    assert smallest.decisions <= 20 < failed.decisions
    assert smallest.violation is not None and smallest.violation.law == "called_once"

    repeated = played(failed.seed, smallest.choices)
    assert repeated.timeline() == smallest.timeline()
    told = repeated.timeline()
    assert told.endswith(str(smallest.violation)) and "claims pair" in told


def test_a_sound_history_is_not_shrunk() -> None:
    sound = simulate(ten_pairs, 1, workflows=[pair])
    assert shrink(sound, lambda choices, most: sound) is sound
