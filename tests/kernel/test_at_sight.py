"""Values that fit at sight are written byte for byte as by the walk, and come back as they were."""

from __future__ import annotations

import dataclasses
import itertools
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar, Union
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from perdure.errors import PayloadError
from perdure.kernel import at_sight as module
from perdure.kernel.at_sight import all_at_sight, at_sight
from perdure.kernel.call_shape import CallShape
from perdure.kernel.payload import decode, digest, encode, encode_and_read
from perdure.kernel.plain import Walk, same
from perdure.kernel.reading import decoder
from perdure.limits import INTEGER_DIGITS, PAYLOAD_BYTES, PAYLOAD_DEPTH
from tests.kernel.test_small_values import Guise, Number, Real, Row, Text, Tree

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Word(StrEnum):
    YES = "yes"


class Right(Flag):
    READ = 1
    WRITE = 2


class Line(Struct):
    sku: str
    count: int
    price: Decimal = Decimal("1.10")


class Box(Struct, rename="camel", tag="box", frozen=True):
    line_count: int
    lines: list[Line]
    colour: Colour | None = None


class Crate(Struct, tag="crate"):
    weight: float
    boxes: tuple[Box, ...] = ()


@dataclasses.dataclass
class Order:
    id: UUID
    at: datetime
    day: date
    packed: Box | Crate
    size: Size
    word: Word
    way: Literal["air", "sea", None]
    paid: bool
    by_name: dict[str, Line]
    _note: Any = None
    parent: Order | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Only:
    rate: float


@dataclasses.dataclass
class Deep:
    below: Deep | None


LINES = st.builds(Line, st.text(), st.integers(), st.decimals())
BOXES = st.builds(Box, st.integers(), st.lists(LINES, max_size=3), st.sampled_from(Colour) | st.none())
CRATES = st.builds(Crate, st.floats(), st.lists(BOXES, max_size=2).map(tuple))
ZONES = st.none() | st.just(UTC) | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.builds(Text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)
ORDERS = st.builds(
    Order, st.uuids(), st.datetimes(timezones=ZONES), st.dates(), BOXES | CRATES, st.sampled_from(Size),
    st.just(Word.YES), st.sampled_from(["air", "sea", None]), st.booleans(),
    st.dictionaries(st.text(), LINES, max_size=3), ANY, st.none(),
)  # fmt: skip
VALUES = (
    LINES | BOXES | CRATES | ORDERS | st.lists(BOXES | CRATES, max_size=3) | st.builds(Only, st.floats())
    | st.builds(Order, *[ANY] * 11) | st.builds(Line, ANY, ANY, ANY) | ANY
)  # fmt: skip
TYPES: tuple[Any, ...] = (Line, Box, Crate, Box | Crate, Order, Only, list[Box | Crate], list[Line], Any)


def walked(value: Any) -> bytes:
    return msgspec.json.encode(Walk(PAYLOAD_BYTES).plain(value))


@given(VALUES, st.sampled_from(TYPES))
def test_what_fits_is_what_the_walk_writes_and_comes_back_as_it_was(value: Any, type: Any) -> None:
    raw = at_sight(value, type, PAYLOAD_BYTES)
    if raw is not None:
        assert raw == walked(value)
        assert same(value, decode(raw, type))


@given(VALUES, VALUES)
def test_arguments_that_fit_are_what_the_walk_writes(first: Any, second: Any) -> None:
    raw = all_at_sight([first, second], [type(first), type(second)], PAYLOAD_BYTES)
    if raw is not None:
        assert raw == walked([first, second])


LINE = Line("a", 1, Decimal("2.5"))
BOX = Box(1, [LINE], Colour.RED)
ORDER = Order(
    UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 2), Crate(1.5, (BOX,)), Size.LARGE, Word.YES, "air",
    True, {"x": LINE}, {"n": [1, None]},
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (LINE, Line), (BOX, Box), (ORDER, Order), (Only(0.5), Only), ([BOX, Crate(1.0)], list[Box | Crate]),
        (dataclasses.replace(ORDER, parent=ORDER), Order), ({"a": [LINE]}, dict[str, list[Line]]),
        ((1, 2), tuple[int, ...]), ([[1], []], list[list[int]]), (Colour.BLUE, Colour | None), ([True], list[bool]),
        (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime), (Decimal("1E+3"), Decimal), ([LINE] * 2_000, list[Line]),
    ],
)  # fmt: skip
def test_ordinary_values_fit(value: Any, type: Any) -> None:
    assert at_sight(value, type, PAYLOAD_BYTES) == walked(value) == encode(value, type=type)
    assert encode_and_read(value, type, what="it")[1] == value


NODES = range(30)
for n in NODES:
    globals()[f"Node{n}"] = msgspec.defstruct(
        f"Node{n}", [(f"to{m}", f"Node{m} | None", None) for m in NODES], module=__name__
    )


def test_a_type_of_many_classes_that_all_name_each_other_is_found_out_at_once() -> None:
    first, second = globals()["Node0"], globals()["Node7"]
    assert at_sight(first(to7=second()), first, PAYLOAD_BYTES) == walked(first(to7=second()))


ALTERNATIVES: dict[Any, Any] = {
    str: "2026-01-02", int: 1, float: 1.0, bool: True, None: None, Decimal: Decimal("1.0"), date: date(2026, 1, 2),
    datetime: datetime(2026, 1, 2, tzinfo=UTC), UUID: UUID(int=7), Colour: Colour.RED, Size: Size.SMALL, Word: Word.YES,
    Line: LINE, Box: BOX, Crate: Crate(1.0), list[int]: [1], dict[str, int]: {"type": 1}, tuple[int, ...]: (1,),
    set[int]: {1}, bytes: b"x", timedelta: timedelta(1), Literal["red", 1]: "red", Only: Only(1.0),
}  # fmt: skip


@pytest.mark.parametrize("pair", [*itertools.combinations(ALTERNATIVES, 2)], ids=str)
def test_of_two_alternatives_the_one_that_was_written_comes_back(pair: tuple[Any, Any]) -> None:
    either: Any = Union.__getitem__(pair)
    try:
        decoder(either)
    except TypeError:
        return  # no parameter, field or result can be of such a type
    for one in pair:
        value = ALTERNATIVES[one]
        raw = at_sight(value, either, PAYLOAD_BYTES)
        assert raw is None or same(value, decode(raw, either))


class Checked(Struct):
    n: int

    def __post_init__(self) -> None:
        self.n = abs(self.n)


class Short(Struct, omit_defaults=True):
    n: int = 0


class Bare(Struct, array_like=True):
    n: int


class Empty(Struct):
    pass


class Limited(Struct):
    n: Annotated[int, msgspec.Meta(ge=0)]


class Of(Struct, Generic[T]):
    what: T


class Unset(Struct):
    n: int | msgspec.UnsetType = msgspec.UNSET


class Wrong(Struct):
    n: int
    x: Any = None


@dataclasses.dataclass
class Partly:
    n: int
    more: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Listed(list):  # type: ignore[type-arg]
    n: int = 0


def _deep(levels: int) -> Deep:
    deep = Deep(None)
    for _ in range(levels):
        deep = Deep(deep)
    return deep


def _shared(levels: int) -> Any:
    value: Any = ["x"] * 100
    for _ in range(levels):
        value = [value] * 100
    return value


def _unfinished() -> Line:
    line = Line("a", 1)
    del line.sku
    return line


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (Checked(1), Checked),
        (Short(), Short),
        (Bare(1), Bare),
        (Empty(), Empty),
        (Limited(-1), Limited),
        (Of(1), Of),
        (Unset(), Unset),
        (Wrong(1.0), Wrong),
        (Wrong(True), Wrong),
        (Wrong(1, {1: 2}), Wrong),  # type: ignore[arg-type]
        (Wrong(1, math.nan), Wrong),
        (Wrong(1, [math.inf]), Wrong),
        (Wrong(1, LINE), Wrong),
        (Wrong(Number(1)), Wrong),
        (Wrong(1, {"a": Text("b")}), Wrong),
        (Wrong(1, Tree()), Wrong),
        (Wrong(1, Row()), Wrong),
        (Wrong(1, Real(1)), Wrong),
        (Wrong(10**INTEGER_DIGITS), Wrong),
        (Wrong(-(10 ** (INTEGER_DIGITS - 1))), Wrong),
        (Wrong(1, "\ud800"), Wrong),
        (Only(math.nan), Only),
        (Only(-math.inf), Only),
        (Line("a", 1, Decimal("NaN")), Line),
        (datetime(2026, 1, 2, tzinfo=timezone(timedelta(seconds=30))), datetime),
        (Partly(1), Partly),
        (Listed(), Listed),
        (Right.READ | Right.WRITE, Right),
        ([1, 2.0], list[int]),
        ({1: LINE}, dict[str, Line]),
        ({Text("a"): 1}, dict[str, int]),
        ("road", Literal["air", "sea"]),
        (True, Literal[1]),
        (LINE, Any),
        (LINE, BOX.__class__),
        (_deep(PAYLOAD_DEPTH), Deep),
        (_shared(4), list[list[list[list[list[str]]]]]),
        (_unfinished(), Line),
        ((1, 2), tuple[int, int]),
        ([LINE] * 200_000, list[Line]),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else type(one).__name__,
)
def test_what_only_the_walk_can_judge_is_left_to_it(value: Any, type: Any) -> None:
    assert at_sight(value, type, PAYLOAD_BYTES) is None
    assert all_at_sight([1, value], [int, type], PAYLOAD_BYTES) is None


def test_what_says_it_is_of_another_class_is_left_to_the_walk() -> None:
    assert at_sight(Guise(Line), Line, PAYLOAD_BYTES) is at_sight(Guise(str), str, PAYLOAD_BYTES) is None
    assert (
        at_sight([Guise(str)], list[str], PAYLOAD_BYTES) is all_at_sight([Guise(Line)], [Line], PAYLOAD_BYTES) is None
    )


@pytest.mark.parametrize(
    "annotation", ["no such thing", "NoSuchName", "math.no_such_name", "1 / 0", "[]", "int | 7", "Annotated[int, []]"]
)
def test_an_annotation_that_means_nothing_hinders_nobody(annotation: str) -> None:
    kind: Any = dataclasses.make_dataclass("Strange", [("n", annotation)], namespace={"__module__": __name__})
    kind.__module__ = __name__
    assert at_sight(kind(1), kind, PAYLOAD_BYTES) is None
    assert encode(kind(1)) == b'{"n":1}'


def test_a_field_without_an_annotation_hinders_nobody() -> None:
    kind: Any = dataclasses.make_dataclass("Bare", [("n", int)])
    kind.__annotations__.clear()
    assert at_sight(kind(1), kind, PAYLOAD_BYTES) is None
    assert encode(kind(1)) == b'{"n":1}'


def test_a_value_nested_deeper_than_the_interpreter_can_follow_is_left_to_the_walk() -> None:
    fits = at_sight(_deep(20_000), Deep, PAYLOAD_BYTES) is not None
    assert not fits


def test_a_value_over_the_limit_does_not_fit() -> None:
    assert at_sight(LINE, Line, len(walked(LINE))) is not None
    assert at_sight(LINE, Line, len(walked(LINE)) - 1) is None


def test_a_recursive_type_fits_as_deep_as_the_walk_goes() -> None:
    deepest = _deep(PAYLOAD_DEPTH - 1)
    assert at_sight(deepest, Deep, PAYLOAD_BYTES) == walked(deepest)


async def pack(order: Order, lines: list[Line], count: int = 1) -> Box: ...


def test_a_call_and_its_result_are_as_by_the_walk_and_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, lines = CallShape(pack), [LINE]
    raw, mark, args, named = shape.copy((ORDER, lines))
    assert raw == walked([ORDER, lines]) and mark == digest(raw) and not named
    assert args == [ORDER, lines] and args[1] is not lines and args[1][0] is not LINE
    assert shape.encode((ORDER, lines, 3)) == walked([ORDER, lines, 3])
    written = shape.encode_result(BOX)
    monkeypatch.setattr(module, "fitting", lambda _: ({}, 0))
    assert shape.copy((ORDER, lines))[:2] == (raw, mark) and shape.encode_result(BOX) == written


@pytest.mark.parametrize("value", [Wrong(1.0), Wrong(1, LINE), Only(math.nan), Limited(-1), Checked(-1)])  # type: ignore[arg-type]
def test_what_would_change_is_refused_as_ever(value: Any) -> None:
    if type(value) is Checked:
        value.n = -1
    with pytest.raises(PayloadError):
        encode(value, type=type(value))
