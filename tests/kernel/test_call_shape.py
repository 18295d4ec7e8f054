"""The shape of a call: arguments are bound, stored, compared and given back typed by the signature."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import DefinitionError, InvalidInput, PayloadError, PayloadTooLarge
from perdure.kernel.call_shape import CallShape
from perdure.kernel.payload import encode, encode_attributes
from perdure.limits import ATTRIBUTES_BYTES, PAYLOAD_BYTES, PAYLOAD_DEPTH


@dataclasses.dataclass
class Line:
    sku: str
    count: int


class Model(pydantic.BaseModel):
    n: int


class Item(msgspec.Struct):
    n: int


def pay(order: str, cents: int, note: str = "", *, gift: bool = False) -> str:
    return f"{order}{cents}{note}{gift}"


async def ship(lines: list[Line], model: Model | None = None) -> Line | None:
    return lines[0] if model else None


def free(anything, more=None):  # type: ignore[no-untyped-def]
    return anything or more


def nothing() -> None: ...


PAY, SHIP, FREE, NOTHING = map(CallShape, (pay, ship, free, nothing))


def test_a_call_by_position_is_a_json_array() -> None:
    assert PAY.encode(("A-17", 1299)) == b'["A-17",1299]'
    assert PAY.decode(b'["A-17",1299]') == (["A-17", 1299], {})
    assert NOTHING.encode(()) == b"[]"
    assert NOTHING.decode(b"[]") == ([], {})


def test_a_call_by_name_is_the_same_call() -> None:
    assert (
        PAY.encode(("A-17",), {"cents": 1299}) == PAY.encode((), {"cents": 1299, "order": "A-17"}) == b'["A-17",1299]'
    )


def test_what_can_only_be_given_by_name_is_stored_by_name() -> None:
    raw = PAY.encode(("A-17", 1299), {"gift": True})
    assert raw == b'{"":["A-17",1299],"gift":true}'
    assert PAY.decode(raw) == (["A-17", 1299], {"gift": True})
    skipped = CallShape(lambda a=1, b=2: a + b)
    assert skipped.encode((), {"b": 5}) == b'{"b":5}'
    assert skipped.decode(b'{"b":5}') == ([], {"b": 5})


def test_a_new_parameter_with_a_default_changes_no_recorded_call() -> None:
    def later(order: str, cents: int, note: str = "", currency: str = "EUR") -> str: ...

    recorded = PAY.encode(("A-17", 1299))
    assert CallShape(later).encode(("A-17", 1299)) == recorded
    assert CallShape(later).decode(recorded) == (["A-17", 1299], {})


def test_a_person_may_write_a_call_with_all_names() -> None:
    assert PAY.decode(b'{"order": "A", "cents": 3, "gift": true}') == ([], {"order": "A", "cents": 3, "gift": True})
    assert PAY.encode(*PAY.decode(b'{"cents": 3, "order": "A"}')) == b'["A",3]'


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("A",), {}),
        (("A", 1, "", 4), {}),
        (("A", 1), {"colour": "red"}),
        (("A", 1), {"order": "B"}),
        ((), {"cents": 1}),
    ],
)
def test_a_call_that_does_not_fit_the_signature_is_refused(args: Any, kwargs: Any) -> None:
    with pytest.raises(InvalidInput, match=r"pay takes \(order.*Call it with these\.$"):
        PAY.encode(args, kwargs)


@pytest.mark.parametrize("args", [("A", "1"), (1, 1), ("A", True), ("A", 1.5), ("A", None)])
def test_an_argument_of_another_type_than_declared_is_refused(args: Any) -> None:
    with pytest.raises(PayloadError, match="do not fit its signature"):
        PAY.encode(args)


@pytest.mark.parametrize(
    "raw",
    [b'["A"]', b"[]", b'["A",1,"",2]', b'["A","1"]', b"null", b"", b'{"order":"A"}', b'{"order":"A","cents":1,"x":2}',
     b'{"":["A",1],"gift":1}', b'{"":["A",1],"order":"B"}', b'{"":1}', b'{"cents":1,"order":"A","cents":2}', b"[[[["],
)  # fmt: skip
def test_recorded_arguments_that_do_not_fit_are_refused_with_what_to_do(raw: bytes) -> None:
    with pytest.raises(PayloadError, match=r"\.$"):
        PAY.decode(raw)


def test_the_guilty_argument_is_named() -> None:
    with pytest.raises(PayloadError, match="argument 'cents' of pay"):
        PAY.encode(("A", object()))
    with pytest.raises(PayloadError, match="at `cents`"):
        PAY.decode(b'["A","x"]')
    with pytest.raises(PayloadError, match=r"at `lines\[0\]\.count`"):
        SHIP.decode(b'[[{"sku":"A","count":"x"}]]')
    with pytest.raises(PayloadError, match="argument 'gift' of pay"):
        PAY.encode(("A", 1), {"gift": math.nan})


def test_typed_arguments_come_back_typed() -> None:
    lines, model = [Line("A", 1)], Model(n=5)
    raw = SHIP.encode((lines, model))
    assert raw == b'[[{"sku":"A","count":1}],{"n":5}]'
    assert SHIP.decode(raw) == ([lines, model], {})


def test_a_step_cannot_change_the_objects_of_the_workflow() -> None:
    lines = [Line("A", 1)]
    raw, _, args, kwargs = SHIP.copy((lines,), {})
    args[0][0].count = 99
    args[0].append(Line("B", 1))
    assert lines == [Line("A", 1)]
    assert raw == SHIP.encode((lines,))
    assert kwargs == {}
    loose = {"free": [1]}
    _, _, args, _ = FREE.copy((loose,), {})
    args[0]["free"].append(2)
    assert loose == {"free": [1]}


def test_plain_arguments_are_handed_on_as_they_are() -> None:
    call = ("A-17", 1299)
    PAY.encode(call)
    raw, _, args, _ = PAY.copy(call, {})
    assert args is call
    assert raw == b'["A-17",1299]'


def test_untyped_parameters_take_json_and_refuse_what_would_change() -> None:
    assert FREE.encode(({"a": [1, None, 2.5]}, "x")) == b'[{"a":[1,null,2.5]},"x"]'
    for value in ((1, 2), {1}, Line("A", 1), Item(1), {"a": (1,)}):
        with pytest.raises(PayloadError, match=r"argument 'anything' of free.*Annotate the exact type"):
            FREE.encode((value,))


@pytest.mark.parametrize("kinds", [("x", 1.5), (None, "null"), (1.5, None), (2**70, "x")])
def test_the_quick_way_and_the_slow_way_write_the_same_bytes(kinds: Any) -> None:
    first, again = FREE.encode(kinds), FREE.encode(kinds)
    assert first == again == encode(list(kinds))
    assert list(FREE.copy(kinds, {})[2]) == list(kinds)


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, "\ud800", 10**5000, -(10**4299)], ids=["nan", "inf", "surrogate", "long", "negative"]
)
def test_the_quick_way_refuses_what_the_slow_way_refuses(bad: Any) -> None:
    FREE.encode((type(bad)(1), "x"))
    FREE.encode((type(bad)(1), "x"))
    with pytest.raises(PayloadError):
        FREE.encode((bad, "x"))


@given(st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), min_size=1, max_size=2))
def test_any_plain_call_comes_back_as_it_was_or_is_refused_every_time(args: Any) -> None:
    for _ in range(2):
        try:
            raw = FREE.encode(args)
        except PayloadError:
            continue
        assert repr(FREE.decode(raw)) == repr((args, {}))


def test_arguments_over_the_limit_are_refused_together() -> None:
    half = "x" * (PAYLOAD_BYTES // 2)
    FREE.encode((half, "y"))
    with pytest.raises(PayloadTooLarge, match="the arguments of free"):
        FREE.encode((half, half))


def test_each_argument_may_be_nested_to_the_limit() -> None:
    value: Any = 1
    for _ in range(PAYLOAD_DEPTH):
        value = {"k": value}
    for kwargs in ({}, {"more": value}):
        raw = FREE.encode((value,), kwargs)
        assert FREE.decode(raw)[0][0] == value
    both = CallShape(lambda *, a: a)
    assert both.decode(both.encode((), {"a": value})) == ([], {"a": value})
    with pytest.raises(PayloadError, match="64 levels"):
        FREE.encode(([value],))
    with pytest.raises(PayloadError, match="64 levels"):
        FREE.decode(b"[" * 80 + b"]" * 80)


def test_the_digest_names_the_arguments_whatever_the_order_of_their_keys() -> None:
    one, other = FREE.encode(({"a": 1, "b": 2},)), FREE.encode(({"b": 2, "a": 1},))
    assert one != other
    assert FREE.digest(one) == FREE.digest(other) != FREE.digest(FREE.encode(({"a": 1, "b": 3},)))


def test_a_result_is_held_to_its_annotation() -> None:
    assert PAY.result_type is str
    assert SHIP.result_type == Line | None
    assert FREE.result_type is Any
    assert SHIP.decode_result(SHIP.encode_result(Line("A", 1))) == Line("A", 1)
    assert SHIP.decode_result(SHIP.encode_result(None)) is None
    assert FREE.decode_result(FREE.encode_result({"a": 1})) == {"a": 1}
    with pytest.raises(PayloadError, match="the result of pay"):
        PAY.encode_result(5)
    with pytest.raises(PayloadError, match="the result of nothing"):
        NOTHING.encode_result(5)
    with pytest.raises(PayloadError, match="the result of ship"):
        SHIP.encode_result({"sku": "A", "count": "x"})
    with pytest.raises(PayloadTooLarge):
        PAY.encode_result("x" * 100, limit=50)


# -- definitions ---------------------------------------------------------------------------------------------


def test_every_type_that_json_can_hold_may_be_declared() -> None:
    def wide(
        a: Sequence[int], b: Mapping[str, Line], c: Literal["x", "y"], d: Item | None, e: object, /, *, f: Model
    ) -> NoReturn: ...

    shape = CallShape(wide)
    call = ([1], {"k": Line("A", 1)}, "x", Item(1), {"any": 1})
    assert shape.decode(shape.encode(call, {"f": Model(n=1)})) == (list(call), {"f": Model(n=1)})


@pytest.mark.parametrize("function", [lambda a, *rest: a, lambda a, **rest: a], ids=["*", "**"])
def test_star_parameters_are_a_definition_error(function: Any) -> None:
    with pytest.raises(DefinitionError, match="Name each parameter instead"):
        CallShape(function)


def result(kind: Any) -> Any:
    def function(): ...

    function.__annotations__["return"] = kind
    return function


class Strange:
    """A class that nobody can read from JSON."""


@pytest.mark.parametrize(
    "kind",
    [Strange, list[Strange], dict[str, Strange | None], Iterator[int], complex, Line | Model, dict[int, Any] | Line],
)
def test_a_type_that_json_cannot_hold_is_a_definition_error(kind: Any) -> None:
    with pytest.raises(DefinitionError, match=r"the result of .*\.$"):
        CallShape(result(kind))


def test_an_annotation_that_cannot_be_resolved_is_a_definition_error() -> None:
    def function(a: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(DefinitionError, match=r"'Missing'.*at the top of the module"):
        CallShape(function)


@pytest.mark.parametrize("function", [5, "x", print, int], ids=repr)
def test_what_has_no_readable_signature_is_a_definition_error(function: Any) -> None:
    with pytest.raises(DefinitionError):
        CallShape(function)


# -- search attributes ---------------------------------------------------------------------------------------


def test_attributes_are_single_values_that_every_database_compares_alike() -> None:
    assert (
        encode_attributes({"city": "Ulm", "n": 5, "paid": True, "x": None})
        == b'{"city":"Ulm","n":5,"paid":true,"x":null}'
    )


@pytest.mark.parametrize(
    "value", ["a\0b", 2**63, math.nan, [1], {"a": 1}, "\ud800", Line("A", 1), "x" * ATTRIBUTES_BYTES]
)
def test_attributes_that_a_database_would_refuse_or_change_are_refused(value: Any) -> None:
    with pytest.raises(PayloadError, match=r"\.$"):
        encode_attributes({"a": value})


@pytest.mark.parametrize("name", ["", " x", "a\nb", "é" * 128])
def test_attribute_names_are_names(name: str) -> None:
    with pytest.raises(InvalidInput):
        encode_attributes({name: 1})


class Mixed(enum.Enum):
    NUMBER = 1
    TEXT = "b"


class Vast(enum.Enum):
    ONE = 1
    MOST = 2**63


@pytest.mark.parametrize("kind", [Mixed, Vast, list[Mixed], Mixed | None])
def test_an_enum_that_would_not_come_back_is_refused_where_it_is_declared_with_what_to_do(kind: Any) -> None:
    def takes(value: Any) -> None: ...

    def gives() -> Any: ...

    takes.__annotations__["value"] = kind
    gives.__annotations__["return"] = kind
    for function, what in ((takes, "parameter 'value'"), (gives, "the result")):
        with pytest.raises(DefinitionError, match=f"{what} of .*only texts, or only integers below"):
            CallShape(function)
