"""Rules of retention: which fits, for how long it keeps, and what is refused when a rule is made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import RetentionRule, Status
from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.process import Process
from perdure.kernel.retention import RetentionState, RuleProgress, deciding, marks, rules_of

SECOND = 1_000_000


def row(number: int = 1, kind: str = "order", status: Status = Status.COMPLETED) -> Process:
    return Process(bytes((number,) * 16), kind, None, b"[]", status, changed_at=number)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("order", ["order"]),
        ("order*", ["order", "order-2", "order.late"]),
        ("*late", ["order.late"]),
        ("o*r", ["order"]),
        ("*", ["order", "order-2", "order.late", "@bank"]),
        ("@*", ["@bank"]),
    ],
)
def test_a_star_in_a_kind_stands_for_any_text(kind: str, fits: list[str]) -> None:
    rule = RetentionRule(kind=kind, after=1)
    assert [one for one in ("order", "order-2", "order.late", "@bank") if rule.fits(row(kind=one))] == fits


def test_a_rule_fits_only_ended_processes_of_its_statuses() -> None:
    every, failed = RetentionRule(after=1), RetentionRule(after=1, status="failed")
    several = RetentionRule(after=1, status=["failed", Status.CANCELLED])
    found = {status: [rule.fits(row(status=status)) for rule in (every, failed, several)] for status in Status}
    assert found == {
        Status.RUNNING: [False] * 3,
        Status.HELD: [False] * 3,
        Status.BROKEN: [False] * 3,
        Status.COMPLETED: [True, False, False],
        Status.FAILED: [True, True, True],
        Status.CANCELLED: [True, False, True],
    }


@pytest.mark.parametrize(
    ("after", "seconds"), [(90, 90), ("90s", 90), ("30d", 2_592_000), (timedelta(hours=1), 3600), (0.5, 60)]
)
def test_a_process_may_go_once_it_ended_that_long_ago_but_not_in_its_first_minute(after: Any, seconds: int) -> None:
    assert RetentionRule(after=after).due_to(10**16) == 10**16 - seconds * SECOND


@pytest.mark.parametrize("after", [None, "never"])
def test_a_rule_may_keep_for_ever(after: Any) -> None:
    rule = RetentionRule(kind="payment", after=after)
    assert rule.due_to(10**16) is None
    assert deciding([rule, RetentionRule(after=1)], row(kind="payment")) is rule


def test_the_first_rule_that_fits_decides() -> None:
    rules = [RetentionRule(kind="order", status="failed", after=9), RetentionRule(kind="order", after=1)]
    assert deciding(rules, row(status=Status.FAILED)) is rules[0]
    assert deciding(rules, row()) is rules[1]
    assert deciding(rules, row(kind="greeting")) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"after": -1}, "is no age"),
        ({"after": "soon"}, "is no age"),
        ({"after": True}, "is no age"),
        ({"after": float("nan")}, "is no age"),
        ({"after": "999999999d"}, "is no age"),
        ({"after": 1, "status": "running"}, "names no status in which a process has ended"),
        ({"after": 1, "status": "finished"}, "names no status"),
        ({"after": 1, "status": []}, "names no status"),
        ({"after": 1, "archive": ""}, "is no folder"),
        ({"after": 1, "archive": 7}, "is no folder"),
        ({"after": 1, "compress": "no"}, "give True or False"),
        ({"after": 1, "kind": ""}, "the kind of a retention rule is empty"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_when_it_is_made(given: dict[str, Any], says: str) -> None:
    with pytest.raises((DefinitionError, InvalidKey), match=says):
        RetentionRule(**given)


def test_rules_are_read_from_mappings_and_what_they_are_not_is_refused_with_its_source() -> None:
    own = RetentionRule(after="1d")
    found = rules_of("shop.toml", [{"kind": "order", "after": "2d", "archive": "old"}, own])
    assert [(rule.kind, rule.seconds, rule.folder) for rule in found] == [
        ("order", 172_800, "old"),
        ("*", 86_400, None),
    ]
    for wrong in ({"kind": "order"}, [{"kind": "order"}], [{"after": 1, "age": 2}], ["order"], "order", 7):
        with pytest.raises(DefinitionError, match=r"of shop\.toml"):
            rules_of("shop.toml", wrong)
    with pytest.raises(DefinitionError, match=r"a retention rule of shop\.toml: RetentionRule\(after='soon'\)"):
        rules_of("shop.toml", [{"after": "soon"}])
    with pytest.raises(DefinitionError, match="has 101 retention rules; there may be 100"):
        rules_of("shop.toml", [own] * 101)


def test_a_rule_begins_anew_when_one_before_it_has_changed_and_not_when_one_behind_it_has() -> None:
    one, two, three = (
        RetentionRule(kind="a", after=1),
        RetentionRule(kind="b", after=1),
        RetentionRule(kind="c", after=1),
    )
    assert list(marks([one, two, three]))[:2] == list(marks([one, two]))
    assert list(marks([one, two]))[1] != next(iter(marks([two])))
    assert len(set(marks([one, one]))) == 2


def test_a_row_that_was_left_is_looked_at_again_an_hour_after_the_rows_were_begun_with() -> None:
    page = [row(number) for number in (1, 2, 3, 4)]
    before = RuleProgress("all", begun_at=5)
    after = before.passed(page, {page[1].id, page[3].id}, 2, 0)
    assert (after.place, after.left, after.removed) == ((4, page[3].id), 2, 2)
    later = after.passed([row(5)], {row(5).id}, 0, 0)
    assert later.again(5 + 3600 * SECOND - 1) == later
    again = later.again(5 + 3600 * SECOND)
    assert (again.place, again.left, again.begun_at) == ((1, page[0].id), 0, 5 + 3600 * SECOND)
    first = before.passed(page, {page[0].id}, 0, 0).again(10**12)
    assert first.place is None, "from the very first row on"


def test_the_place_of_a_rule_that_nobody_has_is_forgotten_after_a_day() -> None:
    day = 24 * 3600 * SECOND
    state = RetentionState(rules={"old": RuleProgress("old", seen_at=1), "new": RuleProgress("new", seen_at=2)})
    changed = state.with_rule("mine", RuleProgress("mine", seen_at=1), 1 + day, {"mine"})
    assert changed.rules.keys() == {"new", "mine"}
    assert replace(changed, rules={}) == RetentionState()
