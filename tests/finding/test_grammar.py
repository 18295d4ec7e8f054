"""What a query means for one process, and what is said of a query that cannot be read."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from perdure.client.finding.fields import FIELDS, Candidate
from perdure.client.finding.finder import narrowed
from perdure.client.finding.grammar import DEPTH, Compared, Either, Every, Not, Query, parsed
from perdure.clock import SECOND
from perdure.errors import InvalidInput, StepError
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status
from perdure.store.base import Search

HOUR = 3600 * SECOND
NOW = 1_000 * HOUR
REFUSED = Failure.of(
    StepError("step 'charge' failed, tried once: CardRefused: no money", step="charge", type="CardRefused")
)
PAYMENT = Process(
    id=bytes(15) + b"\x2a", kind="payment", key="A-17", input=b"[]", status=Status.FAILED, run=2, events=7, inbox=3,
    seen=1, deaths=1, priority=2, code="2",
    attributes=b'{"country":"CH","amount":1299,"express":true,"note":null,"@reply_to":"x"}',
    error=REFUSED.encode(), created_at=NOW - 50 * HOUR, changed_at=NOW - 2 * HOUR,
)  # fmt: skip
WAITS = Process(
    id=bytes(15) + b"\x2b", kind="payment", key=None, input=b"[]", awaiting="signal approved", reminder=True,
    due_at=NOW - 5 * SECOND, created_at=NOW - HOUR, changed_at=NOW - HOUR, owner=None, parent=PAYMENT.id,
)  # fmt: skip


def fits(query: str, row: Process = PAYMENT) -> bool:
    return parsed(query).fits(Candidate(row, NOW))


def test_a_pattern_with_many_stars_takes_no_longer_than_one_with_few() -> None:
    long = replace(PAYMENT, key="* " * 2_000 + "failed?")
    pattern = "** * * * * * * * * * * *failed"
    assert not fits(f"key = '{pattern}'", long) and fits(f"key = '{pattern}*'", long), "a regular expression took hours"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "kind = payment",
        "kind == payment",
        "kind = pay*",
        "kind = '*ment'",
        "kind != shipment and not kind = shipment",
        "kind ~ MENT",
        "status in (broken, failed)",
        "status not in (running, held)",
        "key = A-17 and key >= A-10 and key < B",
        "error = CardRefused and step = charge",
        "message ~ 'no money'",
        'message ~ "charge"',
        "attributes.country = CH and attributes.amount > 1000 and attributes.amount = 1299",
        "attributes.express = true and attributes.express",
        "age > 2d and age <= 3d and age > 49.5h",
        "unchanged >= 2h and unchanged < 121m",
        "created < 1970-02-10T16:00:00Z and created > '1970-02-09'",
        "run = 2 and events = 7 and unheard = 2 and deaths = 1 and priority = 2 and version = 2",
        "mover = nobody and waiting ~ failed",
        "status = running or kind = payment",
        "kind = x or kind = y or kind = payment",
        "kind = x and kind = y or kind = payment",
        "not (kind = x or kind = y)",
        "NOT kind = x AND status = failed",
        "id = 00000000-0000-0000-0000-00000000002a",
        "key and error and deaths",
        "fingerprint = " + Candidate(PAYMENT, NOW).cause.fingerprint,  # type: ignore[union-attr]
    ],
)
def test_a_query_fits(query: str) -> None:
    assert fits(query)
    assert not query or not fits(f"not ({query})")


@pytest.mark.parametrize(
    "query",
    [
        "kind = paymen",
        "kind = Payment",
        "status = running",
        "key = '*18'",
        "kind = payment and (key = x or key = y)",
        "attributes.country = ch or attributes.amount = 1299.5",
        "attributes.missing",
        "attributes.missing = x",
        "attributes.missing != x",
        "attributes.note",
        "attributes.@reply_to",
        "age > 3d",
        "overdue",
        "worker",
        "queue",
        "parent",
        "deadline < 2030-01-01",
    ],
)
def test_a_query_does_not_fit_nor_does_a_comparison_with_what_is_not_there(query: str) -> None:
    assert not fits(query)


LARGE = 2**53 + 1
"""The first whole number that a float cannot hold."""


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (f"= {LARGE}", {LARGE}),
        (f"!= {LARGE}", {LARGE - 1, LARGE + 1}),
        (f"> {LARGE}", {LARGE + 1}),
        (f">= {LARGE}", {LARGE, LARGE + 1}),
        (f"< {LARGE}", {LARGE - 1}),
        (f"<= {LARGE}", {LARGE - 1, LARGE}),
        (f"in ({LARGE}, {LARGE + 1})", {LARGE, LARGE + 1}),
        (f"not in ({LARGE}, {LARGE + 1})", {LARGE - 1}),
        (f"> {LARGE - 1}.5", {LARGE, LARGE + 1}),
        ("= 1e3", set()),
        ("< inf", {LARGE - 1, LARGE, LARGE + 1}),
        ("= nan or attributes.account != nan", set()),
    ],
)
def test_whole_numbers_are_compared_exactly_however_large_they_are(asked: str, numbers: set[int]) -> None:
    rows = {n: replace(PAYMENT, attributes=b'{"account":%d}' % n) for n in (LARGE - 1, LARGE, LARGE + 1)}
    assert {n for n, row in rows.items() if fits(f"attributes.account {asked}", row)} == numbers


def test_a_whole_number_and_a_fraction_are_compared_by_their_values() -> None:
    row = replace(PAYMENT, attributes=b'{"share":0.1,"whole":3.0,"name":"nan"}')
    assert fits(
        "attributes.share = 0.1 and attributes.whole = 3 and attributes.share < 1 and attributes.name = nan", row
    )


def test_who_waits_is_found_by_what_it_waits_for_and_how_late_it_is() -> None:
    assert fits("mover = message and waiting ~ 'signal approved' and overdue and overdue > 4s", WAITS)
    assert not fits("overdue > 6s", WAITS)
    assert fits(f"parent = {'0' * 8}-0000-0000-0000-00000000002a and not error and not key", WAITS)


@pytest.mark.parametrize(
    ("query", "what", "place"),
    [
        ("colour = red", "there is no field 'colour'", 0),
        ("stats = failed", "Did you mean 'status'", 0),
        ("status = fail", "there is no status 'fail'; there are running", 9),
        ("kind = a kind = b", "`and` or `or` is wanted", 9),
        ("kind =", "a value is wanted", 6),
        ("kind = and", None, 0),
        ("(kind = a", "a closing `)` is wanted", 9),
        ("kind in a", "values in brackets", 8),
        ("age > soon", "'soon' is not a duration", 6),
        ("age > 99999999d", "is not a duration, or is too long", 6),
        ("age ~ 2d", "this is no text", 6),
        ("run > many", "'many' is not a number", 6),
        ("run > nan", "'nan' is not a number", 6),
        ("created > yesterday", "'yesterday' is not a time", 10),
        ("and kind = a", "a field is wanted", 0),
        ("kind = 'a", "lacks its second one", 6),
        ("kind = a)", "`and` or `or` is wanted", 8),
        ("= a", "a field is wanted", 0),
        ("(" * (DEPTH + 1) + "kind = a", "nested more than", DEPTH),
    ],
)
def test_a_wrong_query_is_refused_and_shows_the_place(query: str, what: str | None, place: int) -> None:
    if what is None:
        assert parsed(query)
        return
    with pytest.raises(InvalidInput, match=re.escape(what)) as refused:
        parsed(query)
    where = f"at character {place + 1}," if place < len(query) else "at its end:"
    assert f"the query cannot be read {where}" in str(refused.value)


def test_a_query_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a query is a text"):
        parsed(5)  # type: ignore[arg-type]


def test_every_field_can_be_asked_of_every_process() -> None:
    for name in FIELDS:
        for row in (PAYMENT, WAITS):
            assert isinstance(fits(name, row), bool)


DAY = 1_764_028_800 * SECOND  # 2025-11-25


@pytest.mark.parametrize(
    ("query", "search"),
    [
        ("created >= 2025-11-25", Search(created_from=DAY)),
        ("created > 2025-11-25", Search(created_from=DAY + 1)),
        ("created < 2025-11-25", Search(created_to=DAY)),
        ("created <= 2025-11-25", Search(created_to=DAY + 1)),
        ("created > 2025-11-24 and created >= 2025-11-25 and kind = sale", Search(kind="sale", created_from=DAY)),
        ("created = 2025-11-25", Search()),
        ("created > 2025-11-25 or kind = sale", Search()),
        ("not created > 2025-11-25", Search()),
        ("status in (failed, broken)", Search(statuses=(Status.FAILED, Status.BROKEN))),
    ],
)
def test_a_query_is_narrowed_in_the_database_by_what_everything_that_fits_shares(query: str, search: Search) -> None:
    assert narrowed(Search(), parsed(query))[0] == search


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("kind = sale and status in (failed, broken)", ""),
        ("status = failed and kind = sale and error = Refused", "error = Refused"),
        ("kind = sale and kind = loan and status != failed", "kind = loan and status != failed"),
        ("kind = s* and status = fail*", "kind = s* and status = fail*"),
        ("kind in (sale, loan) and not status = failed", "kind in (sale, loan) and not status = failed"),
        ("kind = sale or status = failed", "kind = sale or status = failed"),
        ("key = A-1 and key = A-* and created > 2025-11-25", "key = A-1 and key = A-* and created > 2025-11-25"),
    ],
)
def test_only_what_the_database_has_answered_exactly_is_not_asked_of_each_row(query: str, rest: str) -> None:
    assert told(narrowed(Search(), parsed(query))[1]) == told(parsed(rest))


def told(query: Query) -> str:
    """A query in words again."""
    match query:
        case Every(parts) | Either(parts):
            return f"{type(query).__name__}({', '.join(map(told, parts))})"
        case Not(part):
            return f"not {told(part)}"
        case Compared(field, operator, values):
            return f"{field.name} {operator} {' '.join(values)}"
    return query.field.name
