"""Payloads: what is stored comes back as it was, in canonical bytes."""

from __future__ import annotations

import dataclasses
import json
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidInput, PayloadError
from perdure.kernel.payload import decode, digest, encode
from tests.kernel.classes import (
    Cart,
    Colour,
    Line,
    Model,
    One,
    Other,
    Pair,
    Place,
    Point,
    Root,
    Size,
    Tagged,
    Taken,
    Word,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

BERLIN = ZoneInfo("Europe/Berlin")
"""Its clocks go back from three to two on 25 October 2026, and forward from two to three on 29 March."""
HALVES = [
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "2026-10-25T02:30:00+02:00"),
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "2026-10-25T02:30:00+01:00"),
    (datetime(2026, 10, 25, 3, 30, tzinfo=BERLIN), "2026-10-25T03:30:00+01:00"),
    (datetime(2026, 10, 25, 3, 30, tzinfo=BERLIN, fold=1), "2026-10-25T03:30:00+01:00"),
    (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), "2026-03-29T02:30:00+01:00"),
    (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN, fold=1), "2026-03-29T02:30:00+02:00"),
]

TYPED: list[tuple[object, Any]] = [
    (None, None),
    (True, bool),
    (0, int),
    (-(2**70), int),
    ("", str),
    ('zero \0 byte, quote " and \U0001f600', str),
    (1.1, float),
    (None, int | None),
    (5, int | str),
    (b"\x00\xff", bytes),
    (bytearray(b"\x01"), bytearray),
    (NOW, datetime),
    (NOW.replace(tzinfo=None), datetime),
    (NOW.astimezone(timezone(timedelta(hours=5, minutes=45))), datetime),
    (date(9999, 12, 31), date),
    (time(1, 2, 3), time),
    (timedelta(days=3, microseconds=1), timedelta),
    (UUID(int=7), UUID),
    (Decimal("1.10"), Decimal),
    (Colour.RED, Colour),
    (Size.SMALL, Size),
    (Word.YES, Word),
    ([1, "a", None, {"k": [True]}], Any),
    ((1, "a"), tuple[int, str]),
    ((), tuple[int, ...]),
    ({"b", "a"}, set[str]),
    (frozenset({2, 1}), frozenset[int]),
    ({"k": Line("A", 1)}, dict[str, Line]),
    (Cart([Line("A", 2), Line("B", 1, Decimal("0.30"))], {"x", "y"}, Colour.BLUE, {"free": [1]}), Cart),
    (One(2.5), One),
    (Point(1), Point),
    (Point(1, 2.0), Point),
    (Tagged("Ada", "L"), Tagged),
    ([Tagged("Ada"), Other(1)], list[Tagged | Other]),
    (Pair(1), Pair),
    (Place("Ulm", 89073), Place),
    (Model(at=NOW, sizes=(1, 2), **{"re-named": 3}), Model),
    ([Model(at=NOW)], list[Model]),
    (Root([1, 2]), Root),
]


@pytest.mark.parametrize(("value", "text"), HALVES, ids=lambda part: f"{part} {getattr(part, 'fold', '')}")
def test_a_time_in_a_zone_comes_back_with_its_offset_at_every_hour(value: datetime, text: str) -> None:
    back = decode(encode(value, type=datetime), datetime)
    assert (back.isoformat(), back.timestamp()) == (text, value.timestamp())
    for kind, whole in [
        (list[datetime], [value]),
        (set[datetime], {value}),
        (Taken, Taken(value)),
        (Model, Model(at=value)),
        (tuple[Model, ...], (Model(at=value),)),
    ]:
        raw = encode(whole, type=kind)
        assert text in raw.decode()
        assert encode(decode(raw, kind), type=kind) == raw


@pytest.mark.parametrize(("value", "kind"), TYPED, ids=lambda part: repr(part)[:40])
def test_a_typed_value_comes_back_as_it_was(value: Any, kind: Any) -> None:
    raw = encode(value, type=kind)
    back = decode(raw, kind)
    assert back == value
    assert type(back) is type(value)
    assert encode(back, type=kind) == raw
    assert encode(value) == raw


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_any_json_value_comes_back_as_it_was_and_is_strict_json(value: Any) -> None:
    raw = encode(value, type=Any)
    back = decode(raw)
    assert back == value
    assert repr(back) == repr(value)
    assert json.loads(raw) == value
    assert encode(back) == raw


@given(st.builds(Line, st.text(), st.integers(), st.decimals()) | st.builds(One, st.floats()))
def test_a_dataclass_comes_back_as_it_was_or_is_refused(value: Any) -> None:
    try:
        raw = encode(value, type=type(value))
    except PayloadError:
        return
    assert decode(raw, type(value)) == value


anything = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.complex_numbers()
    | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.one_of(st.text(), st.integers(), st.none()), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(anything)
def test_any_object_at_all_is_either_refused_or_stored_as_strict_json(value: Any) -> None:
    try:
        raw = encode(value)
    except PayloadError:
        return
    assert encode(decode(raw)) == raw


@given(st.binary() | st.sampled_from([b"{", b"[1,", b'"\xff"', b'{"sku":"A","count":1,"price":"x"}', b"null", b""]))
def test_any_bytes_at_all_are_either_read_or_refused_with_a_payload_error(raw: bytes) -> None:
    for kind in (Any, int, str, Line, list[Cart], Model):
        try:
            decode(raw, kind)
        except PayloadError:
            pass


# -- canonical bytes -----------------------------------------------------------------------------------------


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]))))
def test_equal_sets_are_equal_bytes(values: set[str]) -> None:
    shuffled = set()
    for value in sorted(values, reverse=True):
        shuffled.add(value)
    assert encode(values) == encode(shuffled) == encode(frozenset(values))


def test_the_order_of_a_dict_is_kept_and_does_not_change_its_digest() -> None:
    one, other = {"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}
    assert list(decode(encode(one))) == ["b", "a"]
    assert encode(one) != encode(other)
    assert digest(encode(one)) == digest(encode(other))
    assert digest(encode([1])) != digest(encode([2]))
    assert len(digest(b"[]")) == 8


def test_what_cannot_be_read_as_its_type_says_which_type_and_why() -> None:
    with pytest.raises(PayloadError, match=r"the answer cannot be read as Line: .*count.*Correct the value"):
        decode(b'{"sku":"A","count":"x"}', Line, what="the answer")
    with pytest.raises(InvalidInput):
        decode(b"", Line)


def test_an_error_in_a_types_own_check_is_a_payload_error() -> None:
    @dataclasses.dataclass
    class Strict:
        n: int

        def __post_init__(self) -> None:
            raise {0: KeyError("zero"), 1: RuntimeError("one")}[self.n]

    for raw in (b'{"n":0}', b'{"n":1}'):
        with pytest.raises(PayloadError):
            decode(raw, Strict)


def test_a_type_that_nobody_can_read_is_a_payload_error() -> None:
    with pytest.raises(PayloadError, match="complex"):
        decode(b"1", complex)


def test_old_style_named_tuples_are_stored_as_arrays() -> None:
    point = namedtuple("point", "x y")(1, 2)  # type: ignore[call-arg]
    assert encode(point) == b"[1,2]"
