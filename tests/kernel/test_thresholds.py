"""Chains of thresholds: what a retry policy says about the attempts after its own, and about their timeouts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import DefinitionError
from perdure.kernel.policy import Policies, Policy, fitting
from perdure.kernel.retry import AfterFailure, Retry, plain_stages

EXACT: dict[str, Any] = {"jitter": 0.0, "cap": 1000.0}


def plans(retry: Retry, *, spent: float = 0.0) -> list[AfterFailure]:
    """What follows each failed attempt, until none does."""
    found = [retry.plan(1, spent, 0.5)]
    while (last := found[-1]).delay is not None:
        found.append(retry.plan(len(found) + 1, spent, 0.5, last.stage, last.before))
    return found


def test_without_a_chain_the_step_fails_when_its_attempts_are_used_up() -> None:
    assert [plan.delay for plan in plans(Retry(attempts=3, first=1, **EXACT))] == [1.0, 2.0, None]
    assert plans(Retry(attempts=1)) == [AfterFailure(None, 0, 1, alert=False)]


def test_each_stage_makes_its_own_attempts_with_its_own_waits() -> None:
    retry = Retry(attempts=2, first=1, **EXACT, then=[Retry(attempts=3, first=60, **EXACT), "alert", Retry(attempts=1)])
    assert [plan.delay for plan in plans(retry)] == [1.0, 60.0, 120.0, 240.0, 1.0, None]
    assert [plan.alert for plan in plans(retry)] == [False, False, False, False, True, False]
    assert not any(plan.breaks for plan in plans(retry))


def test_a_chain_may_end_with_an_alert_or_a_break_and_tells_people_once() -> None:
    alerted = plans(Retry(attempts=2, **EXACT, then=["alert"]))
    assert [(plan.delay, plan.alert) for plan in alerted] == [(1.0, False), (None, True)]
    broken = plans(Retry(attempts=1, then=("alert", Retry(attempts=1, first=5, **EXACT), "break")))
    assert [(plan.delay, plan.alert, plan.breaks) for plan in broken] == [(5.0, True, False), (None, False, True)]


def test_a_stage_with_back_offs_makes_one_attempt_for_each() -> None:
    retry = Retry(attempts=1, then=[Retry(backoffs=[20, timedelta(seconds=40)], **EXACT)])
    assert [plan.delay for plan in plans(retry)] == [20.0, 40.0, None]


def test_a_total_ends_its_stage_and_the_next_one_goes_on() -> None:
    retry = Retry(attempts=9, first=1, total=10, **EXACT, then=[Retry(attempts=1, first=30, total=60, **EXACT)])
    assert retry.plan(2, 9.5, 0.5) == AfterFailure(30.0, 1, 2, alert=False)
    assert retry.plan(3, 45, 0.5, 1, 2) == AfterFailure(None, 1, 3, alert=False)


def test_a_chain_that_has_become_shorter_goes_on_at_its_end() -> None:
    assert Retry(attempts=5, first=1, **EXACT).plan(4, 0, 0.5, 3, 2) == AfterFailure(2.0, 0, 2, alert=False)


def test_timeouts_grow_by_the_factor_of_their_stage_up_to_its_longest() -> None:
    retry = Retry(timeout_factor=2, timeout_cap=100, then=[Retry(timeout_factor=3)])
    timeouts = [30.0]
    for stage in (0, 0, 0, 1):
        timeouts.append(retry.next_timeout(30.0, timeouts[-1], stage))
    assert timeouts == [30, 60, 100, 100, 300]
    assert retry.next_timeout(500.0, 60.0, 0) == 500, "the step was given more time meanwhile"
    assert Retry().next_timeout(30.0, 30.0, 0) == 30
    assert Retry(timeout_factor=2, timeout_cap=10).next_timeout(30.0, 30.0, 0) == 30, (
        "no attempt gets less than the first"
    )


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("break", "a list of Retry"),
        ([3], "a list of Retry"),
        (["page me"], "a list of Retry"),
        (["break", Retry()], "nothing behind 'break'"),
        ([Retry(then=["break"])], "the first Retry says it for all"),
        ([Retry(on=ValueError)], "the first Retry says it for all"),
        ([Retry(budget=None)], "the first Retry says it for all"),
        ([Retry(total=60), Retry(total=30)], "totals that grow"),
        ([{"tries": 3}], "numbers of a Retry"),
        ([{"never": "x"}], "numbers of a Retry"),
        ([{"attempts": 0}], "a whole number from 1"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(then: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        Retry(then=then)
    with pytest.raises(DefinitionError, match=told):
        Policy(then=then)


@pytest.mark.parametrize("wrong", [{"timeout_factor": 0.5}, {"timeout_factor": "2"}, {"timeout_cap": 0}])
def test_growth_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="makes no sense"):
        Retry(**wrong)
    with pytest.raises(DefinitionError, match="makes no sense"):
        Policy(**wrong)


def test_a_policy_says_a_chain_by_names_and_values_and_keeps_what_it_does_not_say() -> None:
    said = {"attempts": 2, "then": ["alert", {"attempts": 10, "first": 300, "cap": 300}, "break"]}
    policies = Policies([("perdure.toml", {"order.*.charge": said})])
    given = {name: one.value for name, one in policies.of(("order", "*", "charge")).items()}
    made = fitting(Retry(first=0.5, never=ValueError), given)
    assert made == Retry(attempts=2, first=0.5, never=ValueError, then=["alert", Retry(10, 300, cap=300), "break"])
    assert policies.encode() == (
        '[{"order.*.charge":{"attempts":2,"then":["alert",{"attempts":10,"first":300,"cap":300},"break"]}}]'
    )
    assert Retry(**made.numbers(), never=ValueError) == made
    assert plain_stages(["break"]) == ("break",)
