"""What one message says of a rule, and when there is one: what is new, what is over, how many in an hour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import AlertRule, limits
from perdure.client.alerting.silence import checked_hours, silent_at
from perdure.clock import SECOND
from perdure.errors import DefinitionError, InvalidInput
from perdure.kernel.alerting import SUBJECTS, WAITING, AlertFact, AlertLook, AlertPlan, AlertState
from perdure.testing.clock import NOON

HOUR = 3600 * SECOND


def plan(**settings: Any) -> AlertPlan:
    return AlertRule("night", "broken", **settings).plan()


def look(*facts: AlertFact, lasting: int = 0) -> AlertLook:
    return AlertLook(facts, NOON, lasting)


def broken(kind: str, count: int, fresh: int = 0) -> AlertFact:
    return AlertFact(kind, count, f"{count:,} processes of {kind} are broken", fresh, ("A-1", "A-2"))


def texts(state: AlertState) -> list[str]:
    return [delivery.message.text for delivery in state.outbox]


def test_ten_thousand_broken_processes_are_one_message_with_a_count_and_a_sample() -> None:
    state = AlertState().found(plan(), look(broken("order", 10_000)), NOON, silenced=False)
    [delivery] = state.outbox
    assert delivery.message.text == "10,000 processes of order are broken (A-1, A-2, …)"
    assert (delivery.message.count, delivery.message.status, delivery.to) == (10_000, "firing", "log")


def test_what_was_told_is_not_told_again_and_what_comes_new_is() -> None:
    state = AlertState().found(plan(), look(broken("order", 3)), NOON, silenced=False)
    state = state.found(plan(), look(broken("order", 3)), NOON + 60 * SECOND, silenced=False)
    assert len(state.outbox) == 1
    state = state.found(plan(), look(broken("order", 5, 2)), NOON + 120 * SECOND, silenced=False)
    assert texts(state)[1] == "5 processes of order are broken, 2 of them since the last message (A-1, A-2, …)"


def test_no_more_messages_are_sent_in_an_hour_than_the_rule_says_and_the_rest_is_counted() -> None:
    rule, state = plan(per_hour=2), AlertState()
    for minute in range(30):
        state = state.found(rule, look(broken("order", 1 + minute, 1)), NOON + 60 * SECOND * minute, silenced=False)
    assert len(state.outbox) == 2
    state = state.found(rule, look(broken("order", 40, 10)), NOON + HOUR, silenced=False)
    assert "40 processes of order are broken, 38 of them since the last message" in texts(state)[2]


def test_what_came_in_silence_and_is_gone_again_is_not_counted_as_new() -> None:
    state = AlertState().found(plan(), look(broken("order", 3, 3)), NOON, silenced=False)
    state = state.found(plan(), look(broken("order", 53, 50)), NOON + 60 * SECOND, silenced=True)
    state = state.found(plan(), look(broken("order", 3)), NOON + 120 * SECOND, silenced=True)
    state = state.found(plan(), look(broken("order", 3)), NOON + 180 * SECOND, silenced=False)
    assert "3 processes of order are broken, 3 of them since the last message" in texts(state)[1]


def test_what_is_over_is_told_once_if_that_was_asked_for_and_else_not_at_all() -> None:
    for resolved, expected in ((True, ["firing", "resolved"]), (False, ["firing"])):
        rule = plan(resolved=resolved)
        state = AlertState().found(rule, look(broken("order", 3)), NOON, silenced=False)
        for second in range(1, 4):
            state = state.found(rule, look(), NOON + second * SECOND, silenced=False)
        assert [one.message.status for one in state.outbox] == expected
        assert state.subjects == {}
    assert texts(AlertState().found(plan(resolved=True), look(), NOON, silenced=False)) == []


def test_what_begins_and_ends_while_the_rule_is_silenced_is_never_told() -> None:
    rule = plan(resolved=True)
    state = AlertState().found(rule, look(broken("order", 3), broken("bill", 1)), NOON, silenced=True)
    assert state.outbox == () and set(state.subjects) == {"order", "bill"}
    state = state.found(rule, look(broken("bill", 1)), NOON + SECOND, silenced=True)
    state = state.found(rule, look(broken("bill", 1)), NOON + 2 * SECOND, silenced=False)
    assert texts(state) == ["1 processes of bill are broken (A-1, A-2)"]


def test_a_subject_is_told_once_it_has_been_there_for_as_long_as_the_rule_says() -> None:
    state = AlertState()
    for second, many in ((0, 0), (59, 0), (60, 1), (61, 1)):
        state = state.found(
            plan(), look(broken("order", 1), lasting=60 * SECOND), NOON + second * SECOND, silenced=False
        )
        assert len(state.outbox) == many, second


def test_what_happens_once_waits_for_the_end_of_a_silence_and_is_then_forgotten() -> None:
    done = AlertFact("7", 3, "operation 7 is done", once=True)
    state = AlertState().found(plan(), look(done), NOON, silenced=True)
    state = state.found(plan(), look(), NOON + SECOND, silenced=True)
    state = state.found(plan(), look(), NOON + 2 * SECOND, silenced=False)
    assert texts(state) == ["operation 7 is done"]
    state = state.found(plan(resolved=True), look(), NOON + 3 * SECOND, silenced=False)
    assert len(state.outbox) == 1 and state.subjects == {}


def test_the_state_of_a_rule_stays_small_however_much_is_wrong_and_what_is_known_stays() -> None:
    state = AlertState().found(plan(), look(broken("order", 1)), NOON, silenced=False)
    many = [broken(f"kind {number}", 2) for number in range(SUBJECTS + 50)]
    state = state.found(plan(per_hour=10_000), look(broken("order", 1), *many), NOON, silenced=False)
    assert len(state.subjects) == SUBJECTS and "order" in state.subjects
    assert f"and {SUBJECTS - 11} more" in texts(state)[-1]
    for second in range(50):
        state = state.found(plan(per_hour=10_000), look(broken("order", 1, 1)), NOON + second, silenced=False)
    assert len(state.outbox) == WAITING


def test_as_many_messages_wait_for_ten_places_as_for_one() -> None:
    rule = plan(to=[f"https://example.org/{number}" for number in range(10)], per_hour=10_000)
    state = AlertState()
    for second in range(WAITING + 5):
        state = state.found(rule, look(broken("order", 1 + second, 1)), NOON + second * SECOND, silenced=False)
    assert len(state.outbox) == 10 * WAITING
    assert {one.message.at for one in state.outbox} == {NOON + second * SECOND for second in range(5, WAITING + 5)}


def test_a_message_that_is_not_taken_is_tried_ever_less_often_and_given_up_after_a_day() -> None:
    state = AlertState().found(plan(to=["log", "https://example.org"]), look(broken("order", 1)), NOON, silenced=False)
    state = state.answered({state.outbox[0].place: "", state.outbox[1].place: "no answer"}, NOON)
    [left] = state.outbox
    assert (left.to, left.tries, left.next_at - NOON, left.error) == (
        "https://example.org",
        1,
        5 * SECOND,
        "no answer",
    )
    state = replace(state, look_at=NOON + HOUR)
    assert state.due_at == NOON + 5 * SECOND
    for _ in range(10):
        state = state.answered({left.place: "no answer"}, NOON)
    assert state.outbox[0].next_at - NOON == limits.ALERT_RETRY_CAP_SECONDS * SECOND
    assert state.answered({left.place: "no answer"}, NOON + 25 * HOUR).outbox == ()


def test_one_worker_at_a_time_is_at_a_rule_and_a_lease_that_lapsed_makes_the_next_one_longer() -> None:
    one = AlertState().leased("a", NOON)
    assert one is not None and one.leased("b", NOON + 59 * SECOND) is None
    assert one.leased("a", NOON + SECOND) is not None, "it goes on where it has failed"
    two = one.leased("b", NOON + 61 * SECOND)
    assert two is not None and two.leased_until == NOON + (61 + 120) * SECOND
    assert two.released().leased("a", NOON + 62 * SECOND) is not None


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"when": "brokn"}, "Did you mean 'broken'"),
    ({"to": []}, "0 places"),
    ({"to": "ftp://example.org"}, "no place for alerts"),
    ({"to": "https://ana:s3cret@example.org"}, "user name"),
    ({"to": "mailto:ops"}, "no address"),
    ({"to": "mailto:ops@example.org\nBcc: all@example.org"}, "no address"),
    ({"at_least": 0}, "at_least=0"),
    ({"per_hour": True}, "per_hour=True"),
    ({"every": 0}, "every=0"),
    ({"within": "soon"}, "within='soon'"),
    ({"lasting": -1}, "lasting=-1"),
    ({"resolved": 1}, "resolved=1"),
    ({"when": "outage", "where": "kind = order"}, "where="),
    ({"quiet": "at night"}, "22:00-06:00"),
    ({"quiet": ["22:00-06:00 Nowhere/Land"]}, "time zone"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_a_rule_that_makes_no_sense_is_refused_with_its_name_and_without_secrets(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        AlertRule(**{"name": "night", "when": "broken", **wrong})
    assert said in str(refused.value) and "AlertRule(" in str(refused.value) and "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("hours", "at", "silent"),
    [
        ("12:00-21:00", "2026-07-01T20:26:40", True),
        ("22:00-06:00 Europe/Zurich", "2026-07-01T20:26:40", True),  # 22:26 there
        ("22:00-06:00 Europe/Zurich", "2026-12-01T20:26:40", False),  # 21:26 there
        ("22:00-06:00", "2026-07-01T05:59:59", True),
        ("22:00-06:00", "2026-07-01T06:00:00", False),
        ("00:00-24:00", "2026-07-01T06:00:00", True),
    ],
)
def test_silent_hours_go_by_the_clocks_of_their_zone_and_over_midnight(hours: str, at: str, silent: bool) -> None:
    instant = round(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()) * SECOND
    assert silent_at(checked_hours([hours]), instant) is silent


@pytest.mark.parametrize("wrong", ["22-06", "25:00-06:00", "06:00-06:00", "22:00-24:30", "22:00-06:00 localtime", 7])
def test_hours_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        checked_hours([wrong])
