"""Starting with bad values: refused at the door, alike on both stores, and nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import DefinitionError, InvalidInput, InvalidKey, PayloadError, PayloadTooLarge, UnknownKind
from perdure.limits import ATTRIBUTES_BYTES, KEY_BYTES, PAYLOAD_BYTES, PAYLOAD_DEPTH
from perdure.store.base import Search
from tests.input.door import LIMIT, REFUSED_VALUES, nested, refused


@dataclass
class Parcel:
    to: str
    grams: int


@workflow(name="input/echo")
async def echo(value: Any) -> Any:
    return value


@workflow(name="input/ship")
async def ship(parcel: Parcel, name: str = "", count: int = 1) -> str:
    return f"{parcel.to} {parcel.grams} {name} {count}"


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    async with Engine(store_url, work=True, workflows=[echo, ship]) as engine:
        yield engine


async def test_arguments_that_no_payload_can_hold_are_refused_and_nothing_is_stored(engine: Engine) -> None:
    for value, advice in REFUSED_VALUES:
        await refused(engine, engine.start(echo, value), PayloadError, advice)
        await refused(engine, engine.start(echo, value=value), PayloadError, advice)
    assert await engine.count() == {}


async def test_one_bad_call_among_many_refuses_them_all(engine: Engine) -> None:
    await refused(engine, engine.start_many(echo, [(1,), (float("nan"),), (2,)]), PayloadError, "Use None or a text")
    await refused(engine, engine.start_many(echo, ["ab"]), InvalidInput, "Give a tuple for each call")
    await refused(engine, engine.start_many(echo, [(1,)], keys=["a", "b"]), InvalidInput, "give one key, or None")
    assert await engine.count() == {}


async def test_arguments_of_the_wrong_type_or_number_are_refused(engine: Engine) -> None:
    right = Parcel("Oslo", 5)
    for arguments in (("Oslo",), (5,), (None,), ({"to": "Oslo"},), (right, 5), (right, "x", "1"), (right, "x", 1.5)):
        await refused(
            engine, engine.start(ship, *arguments), PayloadError, "Correct them, or bring back code that fits"
        )
    await refused(engine, engine.start(ship, right, b"x"), PayloadError, "Annotate the exact type")
    await refused(engine, engine.start(ship, Parcel("Oslo", "5")), PayloadError, "Correct them")  # type: ignore[arg-type]
    for arguments in ((), (right, "x", 1, "more")):
        await refused(engine, engine.start(ship, *arguments), InvalidInput, "Call it with these.")
    await refused(engine, engine.start(ship, right, colour="red"), InvalidInput, "Call it with these.")  # type: ignore[call-arg]
    misplaced = engine.start(ship, right, key="A-1", deadline=60)  # type: ignore[call-arg]
    await refused(engine, misplaced, InvalidInput, "engine.start(ship.options(key=..., deadline=...), ...)")
    handle = await engine.start(ship, right, count=2)
    assert await handle.result(LIMIT) == "Oslo 5  2"


@step
async def weigh(parcel: Parcel) -> int:
    return parcel.grams


async def unmarked(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (lambda: echo("x"), "engine.start(echo, ...)"),
        (lambda: echo.child, "Start the workflow itself"),
        (lambda: weigh, "Call it in an `async def` that is marked with @workflow"),
        (lambda: unmarked, "Mark it with @workflow"),
        (lambda: 7, "Give a workflow"),
    ],
)
async def test_what_is_no_workflow_is_not_started_and_the_error_says_what_to_write(
    engine: Engine, given: Callable[[], Any], advice: str
) -> None:
    await refused(engine, engine.start(given(), "x"), DefinitionError, advice)


async def test_arguments_are_accepted_up_to_exactly_their_limit(engine: Engine) -> None:
    room = PAYLOAD_BYTES - len('[""]')
    for size in (room - 1, room):
        handle = await engine.start(echo, "x" * size)
        assert len((await engine.row(handle.id)).input) == PAYLOAD_BYTES - room + size
        assert await handle.result(LIMIT) == "x" * size
    advice = "pass a reference"
    await refused(engine, engine.start(echo, "x" * (room + 1)), PayloadTooLarge, advice)
    await refused(engine, engine.start(echo, "é" * (room // 2 + 1)), PayloadTooLarge, advice)
    await refused(engine, engine.start(echo, [None] * (PAYLOAD_BYTES + 1)), PayloadTooLarge, advice)


async def test_arguments_are_accepted_down_to_exactly_the_deepest_level(engine: Engine) -> None:
    handle = await engine.start(echo, nested(PAYLOAD_DEPTH))
    assert await handle.result(LIMIT) == nested(PAYLOAD_DEPTH)
    await refused(engine, engine.start(echo, nested(PAYLOAD_DEPTH + 1)), PayloadError, "Flatten it")


@pytest.mark.parametrize("text", ["a\0b", "\0", "\\u0000", "\x01\x7f\x85", "\U0001f600", "\u202e\ufffe", "e\u0301", ""])
async def test_a_text_with_any_characters_comes_back_as_it_went_in(engine: Engine, text: str) -> None:
    handle = await engine.start(echo, {"a": text, "b": [text], text: 1})
    assert await handle.result(LIMIT) == {"a": text, "b": [text], text: 1}


BAD_KEYS: tuple[tuple[Any, str], ...] = (
    ("", f"Pass a text of 1 to {KEY_BYTES} bytes."),
    ("k" * (KEY_BYTES + 1), "Shorten it, or use its hash."),
    ("é" * (KEY_BYTES // 2 + 1), "Shorten it, or use its hash."),
    ("a\0b", "Remove it."),
    ("a\nb", "Remove it."),
    ("\u200b", "Remove it."),
    ("\ud800", "Remove it."),
    (" a", "Use text.strip()."),
    ("a ", "Use text.strip()."),
    ("e\u0301", "Use unicodedata.normalize('NFC', text)."),
    (7, "Pass a text."),
    (b"key", "Pass a text."),
)


async def test_a_key_that_is_not_fit_to_name_a_process_is_refused(engine: Engine) -> None:
    for key, advice in BAD_KEYS:
        await refused(engine, engine.start(echo.options(key=key), 1), InvalidKey, advice)
        await refused(engine, engine.start_many(echo, [(1,)], keys=[key]), InvalidKey, advice)
    assert await engine.count() == {}


@pytest.mark.parametrize(
    "key", ["k", "k" * KEY_BYTES, "é" * (KEY_BYTES // 2), "order/A-17: a b", "'; %s -- \\"], ids=len
)
async def test_a_key_of_up_to_255_bytes_is_kept_whole(engine: Engine, key: str) -> None:
    handle = await engine.start(echo.options(key=key), 1)
    assert (await engine.handle(echo, key)).id == handle.id
    assert not (await engine.start(echo.options(key=key), 1)).created


async def test_an_unknown_kind_is_refused_with_its_near_match(engine: Engine) -> None:
    await refused(engine, engine.start("input/ecko", 1), UnknownKind, "Did you mean 'input/echo'")
    await refused(engine, engine.start("input/ecko", 1), UnknownKind, "Import its module")
    await refused(engine, engine.start("zzz"), UnknownKind, "Import its module")
    assert await engine.count() == {}


BAD_ATTRIBUTES: tuple[tuple[Any, type[InvalidInput], str], ...] = (
    ({"a": object()}, PayloadError, "Use a text without NUL"),
    ({"a": [1]}, PayloadError, "Use a text without NUL"),
    ({"a": {"b": 1}}, PayloadError, "Use a text without NUL"),
    ({"a": "x\0y"}, PayloadError, "Use a text without NUL"),
    ({"a": 2**63}, PayloadError, "a number below 2**63"),
    ({"a": float("nan")}, PayloadError, "Use None or a text instead."),
    ({"a": float("inf")}, PayloadError, "Use None or a text instead."),
    ({"a": "\ud800"}, PayloadError, "Decode its source"),
    ({"a": "x" * ATTRIBUTES_BYTES}, PayloadTooLarge, "pass a reference"),
    ({"": 1}, InvalidKey, "Pass a text of 1 to"),
    ({"a\0": 1}, InvalidKey, "Remove it."),
    ({"a" * 256: 1}, InvalidKey, "Shorten it"),
    ({1: 1}, InvalidKey, "Pass a text."),
    ([("a", 1)], InvalidInput, "Give a dict of names and single values."),
)


async def test_attributes_that_no_database_can_compare_are_refused(engine: Engine) -> None:
    for attributes, kind, advice in BAD_ATTRIBUTES:
        await refused(engine, engine.start(echo.options(attributes=attributes), 1), kind, advice)
    assert await engine.count() == {}


async def test_attributes_are_accepted_up_to_exactly_their_limit(engine: Engine) -> None:
    room = ATTRIBUTES_BYTES - len('{"a":""}')
    handle = await engine.start(echo.options(attributes={"a": "x" * room}), 1)
    assert len((await engine.row(handle.id)).attributes or b"") == ATTRIBUTES_BYTES
    too_large = engine.start(echo.options(attributes={"a": "x" * (room + 1)}), 1)
    await refused(engine, too_large, PayloadTooLarge, "pass a reference")


async def test_a_deadline_that_is_no_time_is_refused(engine: Engine) -> None:
    for deadline in (0, -1, float("nan"), float("inf"), 1e300, True, "5"):
        await refused(
            engine,
            engine.start(echo.options(deadline=deadline), 1),
            InvalidInput,
            "Give seconds or a timedelta, more than 0",
        )  # type: ignore[arg-type]
    assert await engine.list(Search(kind="input/echo")) == []
