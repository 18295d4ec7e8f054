"""Which key of a policy counts: compared with a plain reading of the rule, for keys drawn at random."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import json

from perdure.errors import DefinitionError
from perdure.kernel.policy import ANY, Policies, Policy, Ruling, fitting, keys
from perdure.kernel.retry import Retry

SUBJECT = ("order", "paid", "charge")
PARTS = [st.sampled_from([ANY, name, "other"]) for name in SUBJECT]
SOURCE = st.dictionaries(
    st.tuples(*PARTS).map(".".join),
    st.fixed_dictionaries({}, optional={"attempts": st.integers(1, 9), "timeout": st.integers(1, 9)}),
    max_size=12,
)


def plainly(sources: list[dict[str, dict[str, Any]]], property: str) -> Any:
    """The rule as it is said: most names, then leftmost, then the later source."""
    fits: list[tuple[Any, ...]] = []
    for number, source in enumerate(sources):
        for key, policy in source.items():
            parts = key.split(".")
            if property in policy and all(part in (ANY, name) for part, name in zip(parts, SUBJECT, strict=True)):
                named = [part != ANY for part in parts]
                fits.append((sum(named), named, number, policy[property]))
    return max(fits)[-1] if fits else None


FITTING = st.dictionaries(
    st.sampled_from(["*.*.*", "*.*.charge", "order.*.charge"]),
    st.sampled_from([{}, {"first": 20}, {"cap": 10}, {"cap": 30}, {"first": 5, "cap": 9}, {"first": 40, "cap": 50}]),
    max_size=3,
)


@given(st.lists(FITTING, max_size=3))
@example([{"*.*.charge": {"cap": 10}}, {"*.*.charge": {"first": 20}, "order.*.charge": {"first": 5}}])
def test_a_first_wait_and_a_cap_that_fit_are_those_of_the_keys_that_count_whatever_others_say(
    sources: list[dict[str, dict[str, Any]]],
) -> None:
    found = Policies((f"source {number}", source) for number, source in enumerate(sources)).of(SUBJECT)
    first, cap = plainly(sources, "first"), plainly(sources, "cap")
    if first is None or cap is None or first <= cap:
        assert [found[name].value if name in found else None for name in ("first", "cap")] == [first, cap]


@given(st.lists(SOURCE, max_size=3))
def test_for_each_property_the_key_that_names_most_counts(sources: list[dict[str, dict[str, Any]]]) -> None:
    found = Policies((f"source {number}", source) for number, source in enumerate(sources)).of(SUBJECT)
    for property in ("attempts", "timeout"):
        value = found[property].value if property in found else None
        assert value == plainly(sources, property)


LENGTHS = st.fixed_dictionaries({}, optional={"first": st.integers(0, 200), "cap": st.integers(0, 200)})
WAITS = st.dictionaries(
    st.tuples(*PARTS).map(".".join),
    LENGTHS.filter(lambda one: one.get("first", 0) <= one.get("cap", one.get("first", 0))),
    max_size=8,
)
OWN = st.sampled_from([Retry(), Retry(first=90, cap=100), Retry(first=0, cap=0), Retry(backoffs=[1, 2])])


@given(st.lists(WAITS, max_size=3), OWN)
def test_policies_that_are_each_right_fit_together_wherever_they_meet(
    sources: list[dict[str, dict[str, Any]]], own: Retry
) -> None:
    policies = Policies((f"source {number}", source) for number, source in enumerate(sources))
    found = {name: one.value for name, one in policies.of(SUBJECT).items()}
    assert fitting(own, found).first <= fitting(own, found).cap
    told = Policies(("the environment", one) for one in json.decode(policies.encode()))  # as a quarantine worker does
    assert {name: one.value for name, one in told.of(SUBJECT).items()} == found


@pytest.mark.parametrize(
    ("sources", "first", "cap", "key", "source"),
    [
        ([{"*.*.*": Policy(cap=30), "*.*.charge": Policy(first=300)}], 300, 300, "*.*.charge", "source 0"),
        ([{"*.*.*": Policy(first=300), "*.*.charge": Policy(cap=30)}], 30, 30, "*.*.charge", "source 0"),
        ([{"order.*.*": Policy(cap=30), "*.*.charge": Policy(first=300)}], 30, 30, "order.*.*", "source 0"),
        ([{"*.*.charge": Policy(cap=30)}, {"*.*.charge": Policy(first=300)}], 300, 300, "*.*.charge", "source 1"),
        ([{"*.*.charge": Policy(first=300)}, {"*.*.charge": Policy(cap=30)}], 30, 30, "*.*.charge", "source 1"),
        ([{"*.*.charge": Policy(first=300)}, {"*.*.*": Policy(cap=30)}], 300, 300, "*.*.charge", "source 0"),
    ],
)
def test_where_the_first_wait_is_longer_than_the_cap_the_one_that_counts_more_sets_both(
    sources: list[dict[str, Policy]], first: int, cap: int, key: str, source: str
) -> None:
    found = Policies((f"source {number}", one) for number, one in enumerate(sources)).of(("order", ANY, "charge"))
    assert found == {"first": Ruling(first, key, source), "cap": Ruling(cap, key, source)}
    retry = fitting(Retry(), {name: one.value for name, one in found.items()})
    assert (retry.first, retry.cap) == (first, cap)


def test_the_keys_of_a_step_stand_in_the_order_in_which_they_count() -> None:
    assert [key for key, _ in keys(("F", "S", "A"))] == [
        "F.S.A", "F.S.*", "F.*.A", "*.S.A", "F.*.*", "*.S.*", "*.*.A", "*.*.*",
    ]  # fmt: skip
    assert [key for key, _ in keys(("order", ANY, "charge"))] == ["order.*.charge", "order.*.*", "*.*.charge", "*.*.*"]


def test_code_gives_way_only_to_a_key_that_names_the_step_and_one_place_to_one_that_names_both() -> None:
    open, step, both = (
        {key: Policy(attempts=n)} for n, key in enumerate(("order.*.*", "*.*.charge", "order.*.charge"), 2)
    )
    subject = ("order", ANY, "charge")
    for policies, bare, declared, here in ((open, 2, None, None), (step, 3, 3, None), (both, 4, 4, 4)):
        made = Policies([("a file", policies)])
        cases: list[tuple[dict[str, Any], int | None]] = [
            ({}, bare), ({"declared": {"retry"}}, declared), ({"declared": {"retry"}, "here": {"retry"}}, here),
        ]  # fmt: skip
        for settings, value in cases:
            assert [one.value for one in made.of(subject, **settings).values()] == ([] if value is None else [value])


@pytest.mark.parametrize("key", ["*.*.*", "order.*.*", "*.*.charge", "order.*.charge", "a.*.b.*.c.*.d"])
def test_a_key_that_names_a_workflow_and_a_step_is_taken(key: str) -> None:
    Policies([("a file", {key: Policy(attempts=2)})]).check(["order", "a.*.b"], ["charge", "c.*.d"])


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("order.*.chrage", "Did you mean 'order.*.charge'"),
        ("oder.*.charge", "Did you mean 'order.*.charge'"),
        ("order.charge", "Did you mean"),
        ("charge", "Did you mean '*.*.charge'"),
        ("", "Write workflow.*.step"),
        ("order.paid.charge", "Did you mean"),
    ],
)
def test_a_key_that_names_nothing_is_refused(key: str, hint: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(hint)):
        Policies([("a file", {key: Policy(attempts=2)})]).check(["order"], ["charge"])


def test_the_keys_of_a_large_program_are_checked_without_a_look_at_each_pair() -> None:
    class Names(list[str]):
        looks = 0

        def __iter__(self) -> Iterator[str]:
            self.looks += 1
            return super().__iter__()

    workflows, steps = Names(["order", "visit", "refund"]), Names(["charge"])
    Policies([("a file", {"order.*.charge": Policy(attempts=2), "*.*.charge": Policy(cap=9)})]).check(workflows, steps)
    assert (workflows.looks, steps.looks) == (1, 1)


@pytest.mark.parametrize("value", [0, -1, "soon", True, float("inf"), [1]])
def test_a_timeout_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(DefinitionError, match="timeout"):
        Policy(timeout=value)


@pytest.mark.parametrize("given", [{"attempts": "none"}, {"attempts": None}, {"first": "none"}, {"cap": None}])
def test_only_total_and_budget_may_be_without_a_bound(given: dict[str, Any]) -> None:
    assert Policy(total="none", budget=None).given == {"total": None, "budget": None}  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=next(iter(given))):
        Policy(**given)


def test_a_longer_first_wait_lifts_the_cap_and_a_lower_cap_the_first_wait() -> None:
    Policy(first=3600)
    Policy(cap=0.1)
    with pytest.raises(DefinitionError, match="first"):
        Policy(first=10, cap=5)
