"""Reads are no writes: one that nobody awaits any more is not begun, and is cut short at the end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.store import SqliteStore

LIMIT = 20.0
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Door:
    """Work that keeps a thread until it is let go."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.begun.set()
        self.open.wait(LIMIT)


async def gone(*calls: asyncio.Task[Any]) -> None:
    """Whoever has called goes away."""
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def begun(event: threading.Event) -> None:
    async with asyncio.timeout(LIMIT):
        while not event.is_set():
            await asyncio.sleep(0)


@pytest.fixture
def done() -> list[str]:
    """What has been done."""
    return []


async def test_a_read_that_nobody_awaits_is_not_done(store: SqliteStore, done: list[str]) -> None:
    for thread in (store._reader, store._people):
        door = Door()
        first = asyncio.create_task(store._read(door, thread))
        await begun(door.begun)
        left = [asyncio.create_task(store._read(lambda _: done.append("left"), thread)) for _ in range(20)]
        last = asyncio.create_task(store._read(lambda _: done.append("awaited"), thread))
        await asyncio.sleep(0)
        await gone(*left)
        door.open.set()
        await asyncio.gather(first, last)
    assert done == ["awaited", "awaited"]


async def test_rule_07_a_write_that_nobody_awaits_is_done_all_the_same(store: SqliteStore, done: list[str]) -> None:
    door = Door()
    first = asyncio.create_task(store._writer.write(lambda transaction: door(transaction.connection)))
    await begun(door.begun)
    left = asyncio.create_task(store._writer.write(lambda _: done.append("written")))
    await asyncio.sleep(0)
    await gone(first, left)
    door.open.set()
    await store.close()
    assert done == ["written"]


async def test_a_read_under_way_that_nobody_awaits_is_cut_short_at_the_end(store: SqliteStore) -> None:
    started = threading.Event()

    def endless(connection: Connection) -> None:
        started.set()
        connection.raw.execute(ENDLESS)

    reading = asyncio.create_task(store._read(endless, store._people))
    await begun(started)
    await gone(reading)
    await asyncio.wait_for(store.close(), LIMIT)


async def test_what_is_awaited_is_answered_before_the_end(store: SqliteStore) -> None:
    door = Door()
    reading = asyncio.create_task(store._read(door, store._people))
    await begun(door.begun)
    closing = asyncio.create_task(store.close())
    await asyncio.wait([closing], timeout=0)
    assert not closing.done()
    door.open.set()
    await reading
    await closing
