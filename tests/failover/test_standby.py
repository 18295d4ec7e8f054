"""A hot standby can be read: people look at processes there; whoever wants more is told where to go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import asyncpg
import pytest

from perdure import receive, step, workflow
from perdure.engine import Engine
from perdure.errors import ProcessNotFound, StoreReadOnly
from tests.failover.cluster import Pair
from tests.runtime.conftest import LIMIT

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]


@step
async def pack(what: str) -> str:
    return what


@workflow
async def parcel(what: str) -> str:
    """Pack, and wait for the postman."""
    await pack(what)
    await receive("postman")
    return what


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary, and a standby that follows it."""
    with Pair(synchronous=False, settings=["fsync=off"]) as made:
        yield made


async def test_a_standby_can_be_read_and_says_clearly_that_it_only_reads(pair: Pair) -> None:
    name = pair.primary.fresh_database().rpartition("/")[2]
    async with Engine(pair.primary.url(name), work=True, workflows=[parcel]) as engine:
        handle = await engine.start(parcel.options(key="A-1"), "a book")
        await soon(engine, handle.id)
        standby = pair.standby.url(name)
        await copied(standby)
        async with Engine(standby, workflows=[parcel]) as reader:
            await soon(reader, handle.id)
            assert [view.key for view in await reader.list()] == ["A-1"]
            assert await reader.count() == await engine.count()
            assert [one.type for one in await reader.process(handle.id).history()] == [
                one.type for one in await engine.process(handle.id).history()
            ]
            for ask in (
                reader.start(parcel, "a pen"),
                reader.process(handle.id).signal("postman"),
                reader.process(handle.id).hold(),
            ):
                with pytest.raises(StoreReadOnly, match="point the URL at the primary"):
                    await asyncio.wait_for(ask, LIMIT)
        with pytest.raises(StoreReadOnly, match="point the URL at the primary"):
            async with Engine(standby, work=True, workflows=[parcel]):
                pass


async def copied(url: str) -> None:
    """Wait until the standby has this database and its tables, which were made on the primary a moment ago."""
    async with asyncio.timeout(LIMIT):
        while True:
            with suppress(asyncpg.InvalidCatalogNameError, asyncpg.CannotConnectNowError):
                outside = await asyncpg.connect(url)
                try:
                    if await outside.fetchval("SELECT to_regclass('perdure.process') IS NOT NULL"):
                        return
                finally:
                    await outside.close()
            await asyncio.sleep(0.01)


async def found(reader: Engine, id: str) -> bool:
    """Whether the standby has come so far."""
    try:
        return (await reader.row(id)).awaiting is not None
    except ProcessNotFound:
        return False


async def soon(engine: Engine, id: str) -> None:
    """Look again and again until the process waits."""
    async with asyncio.timeout(LIMIT):
        while not await found(engine, id):
            await asyncio.sleep(0.01)
