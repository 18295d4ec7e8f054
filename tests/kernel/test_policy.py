"""Retry: how often, how soon and after which errors; nonsense is refused when it is declared."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import DefinitionError, InvalidInput, PayloadError, Permanent, WorkflowMisuse
from perdure.kernel.retry import Retry

EXACT = Retry(attempts=10, jitter=0)


class DeclinedError(ConnectionError):
    """A subclass of a transient error that is permanent for the user."""


class GoneForGoodError(Permanent):
    """A permanent error of the user's own."""


# -- delays -----------------------------------------------------------------------------------------------------------


def test_without_jitter_the_delays_double_to_the_millisecond() -> None:
    assert [EXACT.delay(n, 0.9) for n in range(1, 5)] == [1.0, 2.0, 4.0, 8.0]


def test_the_retries_of_the_table_come_at_3_and_6_and_the_timeout_at_10_comes_first() -> None:
    policy = Retry(attempts=4, first=3.0, factor=1.0, jitter=0, total=10.0)
    clock, sent = 0.0, [0.0]
    while (delay := policy.next_delay(len(sent), clock, 0.5)) is not None:
        clock += delay
        sent.append(clock)
    assert sent == [0.0, 3.0, 6.0, 9.0]
    doubling = Retry(attempts=4, first=3.0, jitter=0, total=10.0)
    assert doubling.next_delay(2, 3.0, 0.5) == 6.0
    assert doubling.next_delay(3, 9.0, 0.5) is None


def test_a_delay_never_passes_the_cap() -> None:
    policy = Retry(attempts=2000, first=1.0, factor=2.0, cap=60.0, jitter=0.5)
    assert policy.delay(7, 0.5) == 60.0
    assert max(policy.delay(n, 0.999) for n in range(1, 2000)) == 60.0


def test_a_factor_of_one_waits_equally_long() -> None:
    policy = Retry(factor=1, first=0.25, jitter=0)
    assert {policy.delay(n, 0.0) for n in range(1, 50)} == {0.25}


def test_jitter_is_uniform_around_the_interval_within_its_bounds() -> None:
    chance = random.Random(17)
    draws = [Retry().delay(1, chance.random()) for _ in range(10_000)]
    assert 0.8 <= min(draws) < 0.81
    assert 1.19 < max(draws) <= 1.2
    assert abs(sum(draws) / len(draws) - 1.0) < 0.005
    assert Retry().jitter == 0.2


@given(
    st.builds(
        Retry,
        attempts=st.integers(1, 10**6),
        first=st.floats(0, 100),
        factor=st.floats(1, 100),
        cap=st.floats(100, 10**9),
        jitter=st.floats(0, 1),
    ),
    st.integers(1, 10**9),
    st.floats(0, 1, exclude_max=True),
)
def test_every_delay_is_finite_and_between_nothing_and_the_cap(policy: Retry, failed: int, chance: float) -> None:
    delay = policy.delay(failed, chance)
    assert 0.0 <= delay <= policy.cap
    if policy.jitter == 0 and failed > 1:
        assert delay >= policy.delay(failed - 1, chance)


# -- attempts and total time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_count_executions(attempts: int) -> None:
    policy, executions = Retry(attempts=attempts), 1
    while policy.next_delay(executions, 0.0, 0.5) is not None:
        executions += 1
    assert executions == attempts


def test_none_means_exactly_one_execution() -> None:
    assert Retry.NONE.attempts == 1
    assert Retry.NONE.next_delay(1, 0.0, 0.5) is None


def test_no_attempt_begins_after_the_total_time() -> None:
    policy = Retry(attempts=10, first=4.0, jitter=0, total=10.0)
    assert policy.next_delay(1, 6.0, 0.5) == 4.0
    assert policy.next_delay(1, 6.001, 0.5) is None
    assert policy.next_delay(1, 99.0, 0.5) is None
    assert Retry(attempts=10).next_delay(1, 1e9, 0.5) is not None


# -- which errors -----------------------------------------------------------------------------------------------------


def test_the_exclusion_of_a_subclass_wins_over_the_inclusion_of_its_base() -> None:
    policy = Retry(on=(ConnectionError,), never=(DeclinedError,))
    assert policy.retries(ConnectionResetError())
    assert not policy.retries(DeclinedError())
    assert not policy.retries(ValueError())


def test_an_empty_list_of_errors_means_all() -> None:
    assert Retry(on=()).retries(ValueError())
    assert Retry(on=()) == Retry()


def test_one_class_may_be_given_without_a_tuple() -> None:
    policy = Retry(on=OSError, never=FileNotFoundError)
    assert policy.retries(TimeoutError())
    assert not policy.retries(FileNotFoundError())


def test_unknown_errors_are_taken_for_transient() -> None:
    assert Retry().retries(type("NeverSeenError", (Exception,), {})())


@pytest.mark.parametrize(
    "kind", [Permanent, GoneForGoodError, PayloadError, InvalidInput, DefinitionError, WorkflowMisuse]
)
def test_errors_that_another_attempt_cannot_cure_are_never_retried(kind: type[Exception]) -> None:
    assert not Retry().retries(kind("x"))
    assert not Retry(on=()).retries(kind("x"))


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_being_told_to_stop_is_not_an_error_to_retry(error: BaseException) -> None:
    assert not Retry().retries(error)


def test_a_group_is_retried_only_if_each_of_its_errors_is() -> None:
    assert Retry().retries(ExceptionGroup("two", [OSError(), ValueError()]))
    assert not Retry().retries(ExceptionGroup("two", [OSError(), ExceptionGroup("one", [Permanent()])]))
    assert not Retry(on=OSError).retries(ExceptionGroup("two", [OSError(), ValueError()]))


# -- nonsense ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": 2.0},
        {"attempts": True},
        {"attempts": ()},
        {"backoffs": "20, 40"},
        {"backoffs": [20, -1]},
        {"backoffs": 20},
        {"offsets": 1},
        {"attempts": "3"},
        {"first": -0.1},
        {"first": math.nan},
        {"first": "1"},
        {"first": 61.0},
        {"factor": 0.5},
        {"factor": math.inf},
        {"cap": -1},
        {"cap": math.inf},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"total": -1},
        {"total": math.nan},
        {"total": True},
        {"budget": 0},
        {"budget": 1.5},
        {"budget": True},
        {"on": "ValueError"},
        {"on": (ValueError, 5)},
        {"on": ValueError("x")},
        {"on": [ValueError]},
        {"never": (int,)},
        {"on": (Permanent,)},
        {"on": (GoneForGoodError,)},
        {"on": (DeclinedError,), "never": (ConnectionError,)},
        {"attempts": 10**5000 * -1},
    ],
    ids=lambda wrong: ",".join(wrong),
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_declared(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"makes no sense.*Correct the declaration\.$"):
        Retry(**wrong)


def test_a_policy_cannot_be_changed_and_compares_by_value() -> None:
    with pytest.raises(AttributeError):
        Retry().attempts = 5  # type: ignore[misc]
    assert Retry(attempts=5) == Retry(attempts=5) != Retry()
    assert hash(Retry()) == hash(Retry())


def test_the_default_factor_makes_three_six_and_then_the_cap_of_ten() -> None:
    policy = Retry(first=3, cap=10, jitter=0)
    assert [policy.delay(failed, 0.9) for failed in (1, 2, 3, 4)] == [3, 6, 10, 10]
