"""The lease of an event stream while the database goes away: nobody reads without it."""

from __future__ import annotations

from itertools import count

import pytest

from perdure import Engine
from perdure.errors import IllegalMove, StoreUnavailable
from perdure.streaming.record import StreamRecord
from perdure.testing.faults import Outage
from tests.runtime.conftest import Open
from tests.streams.flows import HOSTED, parcel


async def drained(engine: Engine) -> list[StreamRecord]:
    return [record async for batch in engine.streams.read("audit", wait=False) for record in batch]


async def filled(opened: Open) -> Engine:
    """An engine with a stream that has something to read."""
    engine, _ = await opened(work=True, workflows=HOSTED)
    await engine.streams.put("audit")
    await (await engine.start(parcel, "tea")).result(20)
    return engine


async def test_a_reader_that_could_not_take_the_lease_does_not_read_without_it(opened: Open) -> None:
    engine = await filled(opened)
    other, store = await opened()
    late = other.streams.read("audit", wait=False)
    looks = count()

    async def goes_away(door: str, _argument: object) -> None:
        if door == "records" and next(looks):  # the stream is read, but the lease is not written any more
            raise StoreUnavailable("the database went away")

    store.before = goes_away
    with pytest.raises(StoreUnavailable):
        await anext(late)
    Outage().upon(store)  # it is back
    async with engine.streams.read("audit") as first:
        batch = await anext(first)
        with pytest.raises(IllegalMove, match="is being read by"):
            await anext(late)
    assert await drained(other) == list(batch)


async def test_a_reader_that_could_not_give_its_lease_back_reads_on_only_once_it_has_it_again(opened: Open) -> None:
    await filled(opened)
    other, store = await opened()
    outage = Outage("records").upon(store)
    batches = other.streams.read("audit", wait=False)
    batch = await anext(batches)
    outage.away = True
    await batches.aclose()
    assert not batches.reader.held
    with pytest.raises(StoreUnavailable):
        await anext(batches)
    outage.away = False
    assert list(await anext(batches)) == list(batch), "the lease that was not given back is still its own"
    await batches.aclose()
