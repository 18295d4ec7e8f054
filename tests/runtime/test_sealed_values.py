"""Published values and first signals of processes whose payloads are sealed, inside the database and outside of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.errors import UnreadablePayload
from perdure.kernel.message import SendVerdict
from perdure.store.base import Search
from perdure.store.sealed.offload import Folder
from perdure.turns.publication import publish, set_attributes
from tests.runtime.conftest import LIMIT, Open
from tests.runtime.test_sealed_life import LONG, sealed


@workflow
async def echo() -> int:
    heard = 0
    while words := await receive("words", str):
        publish("echo", words)
        set_attributes(last=words[:5])
        heard += 1
    return heard


@pytest.mark.parametrize("words", ["hello", LONG], ids=["inside", "outside"])
async def test_what_a_sealed_process_publishes_is_read_by_those_who_have_the_key(
    opened: Open, tmp_path: Path, words: str
) -> None:
    folder = Folder(tmp_path / "blobs", above=1000)
    engine, store = await opened(work=True, workflows=[echo], codecs=sealed(), offload=folder)
    handle = await engine.start(echo.options(key="k", signal=("words", words, "one")))
    stream = handle.values("echo", str)
    async with asyncio.timeout(LIMIT):
        assert await anext(stream) == words
    again = await engine.start(echo.options(key="k", signal=("words", words, "one")))
    assert (again.created, again.sent) == (False, SendVerdict.DUPLICATE)
    other = await engine.start(echo.options(key="k", signal=("words", words[::-1], "two")))
    assert (other.id, other.sent) == (handle.id, SendVerdict.DELIVERED)
    async with asyncio.timeout(LIMIT):
        assert await anext(stream) == words[::-1]
    await handle.signal("words", "")
    assert await handle.result(LIMIT) == 2
    assert [view.id for view in await engine.list(Search(attributes=(("last", f'"{words[::-1][:5]}"'),)))] == [
        handle.id
    ]
    raw = [event.payload or b"" for event in await store.history(handle.id_bytes, 1) if event.name == "echo"]
    assert len(raw) == 2 and not any(words.encode() in one for one in raw)
    client, _ = await opened()
    with pytest.raises(UnreadablePayload):
        await client.process(handle.id).value("echo")
