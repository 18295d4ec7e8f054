"""Telling a process something bad: refused at the door, alike on both stores, and its inbox stays as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import InvalidInput, InvalidKey, PayloadError, PayloadTooLarge, PerdureError, ProcessFailed
from perdure.limits import PAYLOAD_BYTES
from tests.input.door import LIMIT, REFUSED_VALUES, refused


@workflow(name="input/listen")
async def listen() -> Any:
    return await receive("word")


@workflow(name="input/count")
async def number() -> int:
    try:
        return await receive("number", int)
    except PayloadError:
        return -1


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    async with Engine(store_url, work=True, workflows=[listen, number]) as engine:
        yield engine


@pytest.fixture
async def handle(engine: Engine) -> Handle[Any]:
    return await engine.start(listen)


async def unsent(
    engine: Engine, handle: Handle[Any], call: Awaitable[Any], kind: type[PerdureError], to_do: str
) -> None:
    """Have a call refused that would have sent something."""
    await refused(engine, call, kind, to_do)
    assert (await engine.row(handle.id)).inbox == 0


async def test_a_signal_that_no_payload_can_hold_is_refused_and_nothing_is_sent(
    engine: Engine, handle: Handle[Any]
) -> None:
    for value, to_do in REFUSED_VALUES:
        await unsent(engine, handle, handle.signal("word", value), PayloadError, to_do)
    await handle.signal("word", "at last")
    assert await handle.result(LIMIT) == "at last"


async def test_a_signal_is_accepted_up_to_exactly_its_limit(engine: Engine, handle: Handle[Any]) -> None:
    room = PAYLOAD_BYTES - len('""')
    await unsent(engine, handle, handle.signal("word", "x" * (room + 1)), PayloadTooLarge, "pass a reference")
    await handle.signal("word", "x" * room)
    assert await handle.result(LIMIT) == "x" * room
    other = await engine.start(listen)
    await other.signal("word", "x" * (room - 1))
    assert await other.result(LIMIT) == "x" * (room - 1)


async def test_a_signal_with_a_nul_comes_back_as_it_went_in(handle: Handle[Any]) -> None:
    await handle.signal("word", {"a\0b": "\0"})
    assert await handle.result(LIMIT) == {"a\0b": "\0"}


@pytest.mark.parametrize(
    ("name", "to_do"),
    [
        ("", "Pass a text of 1 to 255 bytes."),
        ("n" * 256, "Shorten it"),
        ("a\0b", "Remove it."),
        (" a", "Use text.strip()."),
        ("e\u0301", "Use unicodedata.normalize"),
        ("\ud800", "Remove it."),
        (None, "Pass a text."),
    ],
    ids=ascii,
)
async def test_a_bad_name_or_key_of_a_signal_is_refused(
    engine: Engine, handle: Handle[Any], name: Any, to_do: str
) -> None:
    await unsent(engine, handle, handle.signal(name, 1), InvalidKey, to_do)
    if name is not None:
        await unsent(engine, handle, handle.signal("word", 1, key=name), InvalidKey, to_do)


async def test_a_sender_that_is_no_text_is_refused_and_a_strange_one_is_made_safe(
    engine: Engine, handle: Handle[Any]
) -> None:
    await unsent(engine, handle, handle.cancel(who=5), InvalidInput, "Give a text.")  # type: ignore[arg-type]
    await unsent(engine, handle, engine.process(handle.id).signal("word", who=b"anna"), InvalidInput, "Give a text.")  # type: ignore[arg-type]
    await engine.process(handle.id).signal("word", 1, who="an\0na \ud800", why="w" * 100_000)
    assert await handle.result(LIMIT) == 1


@pytest.mark.parametrize("id", ["", "17", b"short", "\0", None, 5], ids=repr)
async def test_a_process_named_by_what_is_no_id_is_refused(engine: Engine, handle: Handle[Any], id: Any) -> None:
    with pytest.raises(InvalidKey, match=r"Copy it from|Take it from"):
        engine.process(id)
    assert (await engine.row(handle.id)).inbox == 0


async def test_a_signal_that_does_not_fit_the_type_is_told_to_the_workflow(engine: Engine) -> None:
    process = await engine.start(number)
    await process.signal("number", "seventeen")
    assert await process.result(LIMIT) == -1


@workflow(name="input/strict")
async def strict() -> int:
    return await receive("number", int)


async def test_a_signal_that_nobody_expects_fails_its_process_alone(engine: Engine, handle: Handle[Any]) -> None:
    process = await engine.start(strict)
    await process.signal("number", [1])
    with pytest.raises(ProcessFailed, match="Correct the value") as failed:
        await process.result(LIMIT)
    assert failed.value.type == "PayloadError"
    await handle.signal("word", "still here")
    assert await handle.result(LIMIT) == "still here"
