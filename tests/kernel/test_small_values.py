"""Small plain values: written at once they are the same bytes, or the same refusal, as by the walk over every part."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import PayloadError
from perdure.kernel import call_shape, payload
from perdure.kernel.call_shape import CallShape
from perdure.kernel.payload import decode, digest, encode
from perdure.kernel.plain import SCALARS, SMALL_PARTS, is_plain
from perdure.kernel.reading import check_strict, plain_parts
from perdure.limits import INTEGER_DIGITS, PAYLOAD_BYTES


class Text(str):
    """A text of a class of its own."""


class Number(int):
    """An integer of a class of its own."""


class Real(float):
    """A float of a class of its own."""


class Tree(dict):  # type: ignore[type-arg]
    """A dict of a class of its own."""


class Row(list):  # type: ignore[type-arg]
    """A list of a class of its own."""


class Rank(IntEnum):
    """An integer with a name."""

    LOW = 1


class Mood(StrEnum):
    """A text with a name."""

    GLAD = "glad"


class Guise:
    """An object that says it is of another class."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that it says."""
        return self.kind


class Spot(NamedTuple):
    """A tuple with names."""

    x: int


class Order(TypedDict):
    """A dict with known keys."""

    id: str


Old = namedtuple("Old", "x")  # type: ignore[call-arg]

DISGUISED = [
    Text("a"), Number(1), Real(1.5), Tree(a=1), Row([1]), Rank.LOW, Mood.GLAD, Spot(1), Old(1), OrderedDict(a=1),
    defaultdict(int, a=1), Counter("aab"), (1, 2), {1, 2}, b"a", object(), Guise(dict), Guise(list),
]  # fmt: skip

ODD = [math.nan, math.inf, -math.inf, -0.0, 1e16, 2**64, "\ud800", "null", "\0", "{[:", "x" * INTEGER_DIGITS, None]
LONG = [INTEGER_DIGITS - 2, INTEGER_DIGITS - 1, INTEGER_DIGITS, 5000]

long = st.builds(
    lambda digits, sign, more: sign * 10**digits + more,
    st.sampled_from(LONG),
    st.sampled_from([1, -1]),
    st.integers(-1, 1),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(ODD)
)
keys = st.text(st.characters(), max_size=3) | st.sampled_from(
    ["\ud800", "null", Text("k"), Mood.GLAD, 1, None, 1.5, True]
)
values = st.recursive(
    leaves | st.sampled_from(DISGUISED),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
plain_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


def answer(call: Callable[[], Any]) -> Any:
    """What a call answers, or its error's class and text."""
    try:
        return call()
    except ValueError as error:
        return type(error), str(error)


def slowly(call: Callable[[], Any]) -> Any:
    """The same with every value walked."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (payload, call_shape):
            patch.setattr(module, "is_plain", lambda *_: False)
        return answer(call)


def into(order: Any) -> Any: ...
def dict_into(order: dict) -> dict: ...  # type: ignore[type-arg, empty-body]
def any_into(order: dict[str, Any]) -> dict[str, Any] | None: ...
def number_into(order: dict[str, int]) -> dict[str, int]: ...  # type: ignore[empty-body]
def scalar_into(order: dict[str, str | float | None]) -> dict[str, str | float | None]: ...  # type: ignore[empty-body]
def order_into(order: Order) -> Order: ...  # type: ignore[empty-body]
def nested_into(order: dict[str, list[int]]) -> list[Any]: ...  # type: ignore[empty-body]


def lists_into(order: list[float], other: Any = None) -> list[float]: ...  # type: ignore[empty-body]


FUNCTIONS = [into, dict_into, any_into, number_into, scalar_into, lists_into, order_into, nested_into]


@given(values | plain_values)
def test_a_value_is_written_alike_at_once_and_by_the_walk(value: Any) -> None:
    for limit in (PAYLOAD_BYTES, 20):
        assert answer(lambda limit=limit: encode(value, limit=limit)) == slowly(
            lambda limit=limit: encode(value, limit=limit)
        )  # type: ignore[misc]
    for kind in (Any, dict, list, dict[str, Any], dict[str, int], list[float | None], Order):
        assert answer(lambda kind=kind: encode(value, type=kind)) == slowly(lambda kind=kind: encode(value, type=kind))  # type: ignore[misc]


@pytest.mark.parametrize("function", FUNCTIONS)
@given(value=values | plain_values | st.dictionaries(st.text(max_size=2), leaves, max_size=3) | st.lists(leaves))
def test_a_call_and_a_result_are_written_alike_at_once_and_by_the_walk(function: Any, value: Any) -> None:
    shape = CallShape(function)
    assert answer(lambda: shape.encode_result(value)) == slowly(lambda: shape.encode_result(value))
    assert answer(lambda: shape.encode((value,))) == slowly(lambda: shape.encode((value,)))
    quick, slow = answer(lambda: shape.copy((value,))), slowly(lambda: CallShape(function).copy((value,)))
    assert repr((*quick[:2], *map(list, quick[2:]))) == repr((*slow[:2], *map(list, slow[2:])))


@given(plain_values)
def test_what_this_program_has_written_is_read_alike_without_the_check_for_twins(value: Any) -> None:
    shape = CallShape(into)
    try:
        raw, call = shape.encode_result(value), shape.encode((value,))
    except PayloadError:
        return
    assert repr(shape.decode_result(raw, ours=True)) == repr(shape.decode_result(raw)) == repr(value)
    assert repr(decode(raw, ours=True)) == repr(decode(raw))
    assert repr(shape.decode(call, ours=True)) == repr(shape.decode(call)) == repr(([value], {}))


@pytest.mark.parametrize("value", DISGUISED, ids=lambda value: type(value).__name__)
def test_what_only_resembles_a_plain_value_is_walked(value: Any) -> None:
    for around in (value, [value], {"a": value}, {"a": [value]}, [{"a": value}]):
        assert not is_plain(around)
    assert not is_plain({"a": {Text("k"): 1}})
    assert not is_plain({1: 2})


def test_large_and_deep_values_are_walked() -> None:
    assert is_plain(["x"] * (SMALL_PARTS + 1))  # flat: a look at its parts costs little
    assert is_plain([["x"] * SMALL_PARTS])
    assert not is_plain([["x"] * (SMALL_PARTS + 1)])
    assert is_plain({"a": {"b": {}}})
    assert not is_plain({"a": {"b": {"c": {}}}})
    endless: list[Any] = []
    endless.append(endless)
    assert not is_plain(endless)


def test_a_copy_of_a_small_argument_is_the_callees_own() -> None:
    shape = CallShape(any_into)
    order = {"id": "A-17", "lines": [{"count": 1}]}
    for _ in range(2):
        raw, name, (copy,), _ = shape.copy((order,))
        assert raw == b'[{"id":"A-17","lines":[{"count":1}]}]'
        assert name == digest(raw) == digest(b'[{"lines":[{"count":1}],"id":"A-17"}]')
        copy["lines"][0]["count"] = 99
    assert order == {"id": "A-17", "lines": [{"count": 1}]}


TWINS = [b'{"a":1,"a":1}', b'{"a":1,"b":2,"a":3}', b'{"a" :1,"a" : 2}', b'{"a":":","a":1}', b'{"a":1,"\\u0061":2}']
TWINS += [b'{"a":{"b":1,"b":2}}', b'[{"b":1,"b":2}]', b' {"a":1,"a":1}', b'{":":1,":":1}']


@pytest.mark.parametrize("raw", TWINS)
@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any], Order | None, Mapping[str, Any]])
def test_twin_keys_in_what_another_program_wrote_are_refused(raw: bytes, kind: Any) -> None:
    with pytest.raises(PayloadError):
        decode(raw, kind)


objects = st.lists(st.tuples(st.sampled_from(["a", "b", ":", "{", "["]), leaves.filter(lambda value: value == value)))


@given(objects, st.sampled_from([",", " , "]), st.sampled_from([":", " : "]))
def test_an_object_is_read_just_if_it_names_each_key_once(pairs: list[tuple[str, Any]], comma: str, colon: str) -> None:
    try:
        told = comma.join(f"{encode(key).decode()}{colon}{encode(value).decode()}" for key, value in pairs)
    except PayloadError:
        return
    raw = f"{{{told}}}".encode()
    once = len(dict(pairs)) == len(pairs)
    assert (answer(lambda: decode(raw)) == dict(pairs)) == once
    assert (answer(lambda: check_strict(raw, "it")) is None) == once


def test_the_parts_that_come_back_from_a_type_as_they_were() -> None:
    assert plain_parts(dict)[dict] is SCALARS
    assert plain_parts(dict[str, Any] | None) == {dict: SCALARS}
    assert plain_parts(list[int]) == {list: frozenset({int})}
    assert plain_parts(dict[int, str]) == plain_parts(Order) == plain_parts(tuple[int, ...]) == {}
    assert plain_parts(dict[str, list[int]]) == {dict: frozenset()}
