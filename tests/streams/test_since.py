"""Streams that begin with what is stored: all of it comes first, in order, and then what is committed later."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.stream import EventStream
from perdure.store.sealed.offload import Folder
from perdure.streaming.redis_sink import id_of
from tests.runtime.conftest import LIMIT, Open
from tests.runtime.test_sealed_life import sealed
from tests.streams.flows import HOSTED, parcel
from tests.streams.test_streams import drained, types

WHOLE = ["created", "begun", "step_completed", "step_completed", "completed"]


async def test_a_new_stream_begins_with_what_is_stored_and_goes_on_with_what_is_committed(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    first = await engine.start(parcel.options(key="A-17"), "tea")
    await first.result(20)
    view = await engine.streams.put("audit", since="beginning")
    assert (view.behind, view.reader, view.until) == (5, "", None)
    assert view.oldest == (await first.status()).created_at
    second = await engine.start(parcel, "salt")
    await second.result(20)
    records = await drained(engine)
    assert types([one for one in records if one.process == first.id]) == WHOLE
    assert types([one for one in records if one.process == second.id]) == WHOLE and records[5].process == second.id
    assert [one.number for one in records[:5]] == [0, 0, 1, 2, 3]
    assert [one.position for one in records] == sorted({one.position for one in records})
    assert await drained(engine) == []
    await (await engine.start(parcel, "tea")).result(20)
    assert types(await drained(engine)) == WHOLE


async def test_a_stream_begins_with_what_is_stored_since_an_instant(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    await (await engine.start(parcel, "tea")).result(20)
    late = await engine.start(parcel, "salt")
    await late.result(20)
    created = (await late.status()).created_at
    await engine.streams.put("audit", since=created, kinds=["parcel"], events="lifecycle")
    records = await drained(engine)
    assert types([one for one in records if one.process == late.id]) == ["created", "begun", "completed"]
    assert all(one.at is not None and one.at >= created for one in records)


async def test_what_is_stored_comes_open_if_it_is_sealed(opened: Open, tmp_path: Any) -> None:
    engine, _ = await opened(
        work=True, workflows=HOSTED, codecs=sealed(), offload=Folder(tmp_path / "blobs", above=500)
    )
    long = 600 * "x"
    await (await engine.start(parcel, long)).result(20)
    await engine.streams.put("audit", since="beginning")
    created, _, first, *_ = await drained(engine)
    assert (created.payload, first.payload) == ([long], f"{long}, packed")


async def test_a_stream_whose_maker_died_is_read_by_nobody_until_it_is_put_again(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=HOSTED)
    await (await engine.start(parcel, "tea")).result(20)
    await store.records(EventStream, [EventStream("audit").begun_with_what_is_stored().next()])
    assert (await engine.streams.state("audit")).behind == 0
    with pytest.raises(IllegalMove, match="looks for what is stored"):
        await drained(engine)
    with pytest.raises(IllegalMove, match="put the stream again with since="):
        await asyncio.wait_for(engine.streams.tail("audit"), LIMIT)
    with pytest.raises(IllegalMove, match="put it again with since="):
        await engine.streams.put("audit")
    assert (await engine.streams.put("audit", since="beginning")).behind == 5
    assert len(await engine.streams.tail("audit")) == 5
    assert types(await drained(engine)) == WHOLE


async def test_a_beginning_that_makes_no_sense_is_refused_before_anything_is_stored(opened: Open) -> None:
    engine, _ = await opened()
    wrong: list[Any] = [
        "",
        "yesterday",
        5,
        None,
        datetime.fromisoformat("2026-01-01"),
        datetime.now(UTC) + timedelta(days=1),
    ]
    for since in wrong:
        with pytest.raises(InvalidInput, match="since="):
            await engine.streams.put("audit", since=since)
    assert await engine.streams.list() == []
    await engine.streams.put("audit")
    with pytest.raises(IllegalMove, match="keeps its position"):
        await engine.streams.put("audit", since="beginning")


def test_ids_in_redis_ascend_from_what_was_stored_to_what_came_later() -> None:
    ids = [tuple(map(int, id_of(position).split("-"))) for position in (-(2**61), -7, -1, 0, 1, 2, 2**60)]
    assert ids[0] > (0, 0) and all(before < after for before, after in pairwise(ids))
    assert all(part < 2**64 for id in ids for part in id)
