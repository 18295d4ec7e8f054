"""Calls of processes whose payloads are sealed: an answer is found in whichever run, by those who have the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import UnreadablePayload
from perdure.kernel.event import ANSWERS
from perdure.store.sealed.offload import Folder
from tests.calls.bank import crowd, turned
from tests.runtime.conftest import LIMIT, Open
from tests.runtime.test_sealed_life import sealed


@pytest.mark.parametrize("size", [10, 5_000], ids=["inside", "outside"])
async def test_an_answer_is_sealed_for_its_call_and_read_by_those_who_have_the_key(
    opened: Open, tmp_path: Path, size: int
) -> None:
    folder = Folder(tmp_path / "blobs", above=1000)
    engine, store = await opened(work=True, workflows=[crowd], codecs=sealed(), offload=folder)
    handle = await engine.start(crowd)
    for _ in range(2):
        assert await handle.call("quote", size, str, key="k", timeout=LIMIT) == "x" * size
    raw = [event.payload or b"" for event in await store.history(handle.id_bytes, 1) if event.type in ANSWERS]
    assert len(raw) == 1 and b"x" * 8 not in raw[0]
    client, _ = await opened()
    with pytest.raises(UnreadablePayload):
        await client.process(handle.id).call("quote", size, key="k", timeout=LIMIT)


async def test_an_answer_of_a_later_run_is_opened_as_well(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[turned], codecs=sealed())
    handle = await engine.start(turned, 2)
    for number in (1, 2, 1):
        assert await handle.call("quote", number, key=f"k{number}", timeout=LIMIT) == -number
