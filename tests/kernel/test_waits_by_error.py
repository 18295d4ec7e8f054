"""Waits by error: which of a retry's waits follows an error, and what may be said of a class."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from perdure.authoring.queue import with_numbers
from perdure.errors import DefinitionError, Permanent
from perdure.kernel.policy import fitting
from perdure.kernel.retry import Retry


class Busy(Exception):
    pass


class RateLimited(Busy):
    pass


class Conflict(Exception):
    pass


EXACT: dict[str, Any] = {"jitter": 0.0, "cap": 1000.0}
PATIENT = Retry(
    attempts=5, first=1, **EXACT, waits={Busy: Retry(first=30, **EXACT), Conflict: 0, OSError: Retry(backoffs=[7, 8])}
)


def waits(retry: Retry, *errors: Exception, stage: int = 0, before: int = 0) -> list[float | None]:
    return [retry.plan(number, 0.0, 0.5, stage, before, error).delay for number, error in enumerate(errors, 1 + before)]


def test_the_class_of_an_error_says_how_long_to_wait_and_its_number_counts_every_failure() -> None:
    assert waits(PATIENT, ValueError(), ValueError()) == [1.0, 2.0]
    assert waits(PATIENT, Busy(), Conflict(), Busy(), ValueError()) == [30.0, 0.0, 120.0, 8.0]
    assert waits(PATIENT, OSError(), OSError(), OSError()) == [7.0, 8.0, 8.0]


def test_the_nearest_class_counts() -> None:
    assert waits(PATIENT, RateLimited()) == [30.0]
    both = Retry(first=1, waits={Exception: 5, RateLimited: timedelta(minutes=1), Busy: 30})
    assert waits(both, RateLimited()) == pytest.approx([60.0])
    assert waits(both, Conflict()) == [5.0]


def test_of_a_group_the_error_that_wants_the_longest_wait_counts() -> None:
    assert waits(PATIENT, ExceptionGroup("both", [Conflict(), Busy(), ValueError()])) == [30.0]
    assert waits(PATIENT, ExceptionGroup("none", [ValueError()])) == [1.0]


def test_an_error_of_which_only_the_names_are_known_waits_as_long() -> None:
    assert PATIENT.plan(1, 0.0, 0.5, error=("RateLimited", "Busy", "Exception")).delay == 30.0
    assert PATIENT.plan(1, 0.0, 0.5, error=("ValueError", "Exception")).delay == 1.0


def test_attempts_total_and_later_stages_are_those_of_the_whole() -> None:
    assert waits(PATIENT, *(Conflict() for _ in range(5)))[-2:] == [0.0, None]
    short = Retry(attempts=5, first=1, total=20, **EXACT, waits={Busy: 30})
    assert waits(short, Conflict(), Busy()) == [1.0, None], "the wait would end after the total time"
    staged = Retry(attempts=1, **EXACT, then=[Retry(attempts=2, first=60, **EXACT)], waits={Conflict: 0})
    assert waits(staged, Conflict()) == [0.0]
    assert waits(staged, Conflict(), stage=1, before=1) == [0.0]
    assert waits(staged, Busy(), stage=1, before=1) == [120.0]


def test_waits_stay_where_other_numbers_are_changed() -> None:
    for changed in (replace(PATIENT, attempts=9), fitting(PATIENT, {"attempts": 9}), with_numbers(PATIENT, {"cap": 9})):
        assert changed.waits == PATIENT.waits
    assert "waits" not in PATIENT.numbers(), "classes cannot be sent along with a task"


def test_what_a_task_does_not_say_of_its_retry_is_as_by_default_and_not_as_the_step_has_it() -> None:
    own = Retry(backoffs=[1, 2], offsets=True, timeout_factor=2, timeout_cap=60, then=["alert", "break"])
    assert with_numbers(own, {"attempts": 4, "cap": 9.0}) == Retry(attempts=4, cap=9)
    assert with_numbers(own, {"attempts": 4, "then": ["break"]}) == Retry(attempts=4, then=["break"])
    assert with_numbers(own, None) == own


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({Busy: Retry(attempts=9)}, "attempts"),
        ({Busy: Retry(total=9)}, "total"),
        ({Busy: -1}, "from 0"),
        ({Busy: "soon"}, "waits"),
        ({"Busy": 1}, "error class"),
        ({Permanent: 1}, "never"),
        ([Busy], "error classes with a Retry"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(given: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=r"Retry\(waits=.*" + told):
        Retry(waits=given)


def test_a_class_that_is_never_retried_has_no_wait_and_a_later_stage_has_none_of_its_own() -> None:
    with pytest.raises(DefinitionError, match="never"):
        Retry(never=Busy, waits={RateLimited: 1})
    with pytest.raises(DefinitionError, match="first Retry says it for all"):
        Retry(then=[Retry(waits={Busy: 1})])
