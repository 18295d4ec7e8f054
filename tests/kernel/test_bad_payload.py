"""Bad values: what JSON or a database would change, merge or lose is refused at the door, with what to do.

First the rows of table 2.5 of the reliability specification (data that breaks things), one after the other; then what
would come back as something else.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest

from perdure.errors import PayloadError, PayloadTooLarge
from perdure.kernel.payload import decode, encode
from perdure.limits import INTEGER_DIGITS, PAYLOAD_BYTES, PAYLOAD_DEPTH
from tests.kernel.classes import Bare, Cart, Colour, Line, Memo, One, Size, SpecialLine, Word

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

UNTYPED = object()


def refused(value: Any, *parts: str, kind: Any = UNTYPED) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        encode(value) if kind is UNTYPED else encode(value, type=kind)
    text = str(caught.value)
    for part in parts:
        assert part in text
    assert text.endswith(".")
    return caught.value


def test_a_nul_in_a_text_is_escaped_and_comes_back() -> None:
    assert encode("a\0b") == b'"a\\u0000b"'
    assert decode(b'"a\\u0000b"') == "a\0b"


@pytest.mark.parametrize("value", ["\ud800", ["x", "\udc00y"], {"\ud800": 1}, {"a": ["\ud800"]}, Line("\ud800", 1)])
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    refused(value, "lone surrogate", "errors='replace'")


def test_a_lone_surrogate_in_foreign_json_is_refused() -> None:
    with pytest.raises(PayloadError):
        decode(rb'"\ud800"')


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "wrap", [lambda n: n, lambda n: [n], lambda n: {"a": (1, n)}, One], ids=["bare", "list", "dict", "field"]
)
def test_nan_and_infinity_are_refused_wherever_they_hide(number: float, wrap: Any) -> None:
    refused(wrap(number), "is not a number in JSON", "None or a text")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_refused_in_decimals_too(text: str) -> None:
    refused(Decimal(text), "is not a number")


def test_nan_in_a_pydantic_model_is_refused_when_its_type_is_known() -> None:
    class Loose(pydantic.BaseModel):
        x: float

    refused(Loose(x=math.nan), kind=Loose)


@pytest.mark.parametrize("raw", [b"NaN", b"[Infinity]", b"-Infinity", b'{"a":nan}'])
def test_nan_and_infinity_in_foreign_json_are_refused(raw: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(raw)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 2**200])
def test_integers_beyond_64_bits_come_back_exactly(number: int) -> None:
    assert decode(encode(number), int) == number
    assert decode(encode([number], type=list[int]), list[int]) == [number]


def test_an_integer_of_4300_digits_is_kept_and_one_of_4301_is_refused() -> None:
    largest = 10**INTEGER_DIGITS - 1
    assert decode(encode(largest)) == largest
    assert decode(encode([-(largest // 10)])) == [-(largest // 10)]
    refused(largest + 1, "4,300 digits", "as a text")
    refused([-(largest // 10) - 1], "4,300 digits", "at [0]")
    with pytest.raises(PayloadError):
        decode(b"1" + b"0" * INTEGER_DIGITS)


@pytest.mark.parametrize("raw", [b"1e400", b"[-1e400]", b'{"a":1e200000}'])
def test_a_number_that_does_not_round_trip_is_refused(raw: bytes) -> None:
    with pytest.raises(PayloadError):
        decode(raw)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_of_64_is_kept_and_65_is_refused_on_both_ways() -> None:
    deepest = nested(PAYLOAD_DEPTH)
    assert decode(encode(deepest, type=Any)) == deepest
    refused(nested(PAYLOAD_DEPTH + 1), "64 levels", "Flatten it")
    with pytest.raises(PayloadError, match="64 levels"):
        decode(b"[" * 65 + b"]" * 65)
    with pytest.raises(PayloadError, match="64 levels"):
        decode(b'{"a":' * 65 + b"1" + b"}" * 65)


def test_many_flat_containers_are_not_taken_for_deep_ones() -> None:
    assert decode(encode([[]] * 1000)) == [[]] * 1000


@pytest.mark.parametrize("levels", [1_000, 10_000, 100_000])
def test_absurd_nesting_is_refused_and_crashes_nothing(levels: int) -> None:
    with pytest.raises(PayloadError):
        decode(b"[" * levels + b"]" * levels)
    with pytest.raises(PayloadError):
        decode(b"[" * levels + b"]" * levels, list[Any])
    refused(nested(levels))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    refused(loop, "64 levels")


def test_parts_shared_without_end_are_refused_as_too_large_and_not_multiplied() -> None:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    assert isinstance(refused(value, "size limit"), PayloadTooLarge)


@pytest.mark.parametrize(
    "raw",
    [b'{"a":1,"a":2}', b'{"a":1, "a":1}', b'[{"b":{"a":1,"c":2,"a":3}}]', b'{"a":1,"\\u0061":2}', b' {"a":1e9,"a":2} '],
)
def test_duplicate_keys_in_foreign_json_are_refused(raw: bytes) -> None:
    with pytest.raises(PayloadError, match="'a' twice"):
        decode(raw)
    with pytest.raises(PayloadError):
        decode(raw, dict[str, Any])


def test_foreign_json_with_spaces_and_other_spellings_is_read() -> None:
    assert decode(b' { "a" : 1e2 , "b" : "\\u0041" } ') == {"a": 100.0, "b": "A"}


@pytest.mark.parametrize("key", [1, True, None, 1.5, b"x", (1, 2), Word.YES, UUID(int=1)])
def test_keys_that_are_no_texts_are_refused(key: Any) -> None:
    refused({key: "x"}, "is not a text", "str(key)")
    refused([{"a": {key: "x"}}], "at [0]['a']")


@pytest.mark.parametrize(("number", "text"), [(-0.0, b"-0.0"), (1.10, b"1.1"), (1e2, b"100.0"), (5e-324, b"5e-324")])
def test_floats_are_stored_as_canonical_bytes(number: float, text: bytes) -> None:
    assert encode(number) == text
    assert math.copysign(1, decode(text)) == math.copysign(1, number)
    assert decode(text) == number


@pytest.mark.parametrize("offset", [-1, 0])
def test_a_payload_up_to_its_limit_is_kept(offset: int) -> None:
    text = "x" * (PAYLOAD_BYTES - 2 + offset)
    assert len(encode(text)) == PAYLOAD_BYTES + offset
    assert decode(encode([text[2:]])) == [text[2:]]


@pytest.mark.parametrize("extra", [1, 300 * 1024 * 1024])
def test_a_payload_over_its_limit_is_refused(extra: int) -> None:
    error = refused("x" * (PAYLOAD_BYTES - 2 + extra), "2,097,152", "pass a reference")
    assert isinstance(error, PayloadTooLarge)


def test_limits_count_bytes_and_not_letters() -> None:
    assert encode("é" * 49, limit=100)
    for value in ("é" * 50, ["é" * 49]):
        with pytest.raises(PayloadTooLarge):
            encode(value, limit=100)


def test_a_list_with_too_many_members_is_refused_before_it_is_written() -> None:
    assert isinstance(refused([0] * (PAYLOAD_BYTES + 1), "size limit"), PayloadTooLarge)


# -- what would come back as something else ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (object(), "dataclasses, msgspec Structs or pydantic models"),
        (1j, "pass a reference"),
        (ValueError("x"), "pass a reference"),
        (lambda: 1, "pass a reference"),
        (Line, "pass a reference"),
        (Counter("aab"), "dict(...)"),
        (OrderedDict(a=1), "dict(...)"),
        (type("Text", (str,), {})("x"), "str(...)"),
        (type("Number", (float,), {})(1.5), "float(...)"),
        ([range(3)], "pass a reference"),
    ],
    ids=repr,
)
def test_what_cannot_be_stored_is_refused_with_what_to_do(value: Any, hint: str) -> None:
    refused(value, "cannot be stored", hint)


def test_a_coroutine_is_refused_with_the_likely_cause() -> None:
    async def step() -> int:
        return 1

    coroutine = step()
    refused([coroutine], "await")
    coroutine.close()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ((1, 2), Any),
        ({1, 2}, Any),
        (Line("A", 1), Any),
        (NOW, Any),
        ([Line("A", 1)], list[Any]),
        ((1, 2), list[int]),
        (SpecialLine("A", 1), Line),
        (Cart([SpecialLine("A", 1)]), Cart),
        (Cart([], note=(1, 2)), Cart),
        (2**60 + 1, float),
        (Colour.RED, str),
        (b"x", str),
    ],
    ids=repr,
)
def test_what_its_declared_type_would_change_is_refused(value: Any, kind: Any) -> None:
    refused(value, "would not come back from the store as it was", "Annotate the exact type", kind=kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("5", int),
        (5, str),
        (True, int),
        (1, bool),
        (None, int),
        (5.0, int),
        ([1, "x"], list[int]),
        (1, None),
        ("x", Colour),
    ],
    ids=repr,
)
def test_a_value_of_another_type_than_declared_is_refused(value: Any, kind: Any) -> None:
    refused(value, kind=kind)


@pytest.mark.parametrize(("value", "kind"), [(5, float), (Word.YES, str), (Size.SMALL, int), ([1, 2.5], list[float])])
def test_what_differs_only_in_name_from_its_declared_type_is_kept(value: Any, kind: Any) -> None:
    assert decode(encode(value, type=kind), kind) == value


def test_a_missing_field_is_refused() -> None:
    broken = Line("A", 1)
    del broken.sku
    refused(broken, "sku")


def test_an_offset_of_odd_seconds_is_refused() -> None:
    refused(datetime(1880, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam")), "odd seconds", "UTC")


def test_the_path_to_the_guilty_value_is_told() -> None:
    refused({"lines": [{"price": 1.0}, {"price": math.nan}]}, "at ['lines'][1]['price']")
    refused(Cart([Line("A", 1), Line("B", 10**5000)]), "at ['lines'][1]['count']")


def test_objects_are_compared_by_their_fields_and_not_by_their_own_idea_of_equality() -> None:
    assert decode(encode(Bare(7), type=Bare), Bare).n == 7
    refused(Memo(1, note=(1, 2)), "would not come back", kind=Memo)
