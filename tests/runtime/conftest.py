"""Engines for the tests of the runtime: opened on one database, each behind a store that can fail on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import pytest

from perdure.clock import Computer
from perdure.engine import Engine
from perdure.errors import ProcessNotFound
from perdure.runtime.steps.isolated.fork_server import attach, detach
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore

Open = Callable[..., Awaitable[tuple[Engine, FaultyStore]]]
QUICK_TURNS, A_MOMENT = 200, 0.002
"""What has not happened after so many turns of the loop waits for a time or the database: then ask every 2 ms."""
LIMIT = 20.0
"""Seconds after which a test has failed; nothing waits for this long when all is well."""


@pytest.fixture(scope="session", autouse=True)
def _one_fork_server() -> Iterator[None]:
    """All workers of these tests share one fork server, as those of a program do: it does not end with each of them."""
    server = attach()
    yield
    detach(server)


@asynccontextmanager
async def engines_on(url: str) -> AsyncIterator[Open]:
    """Opens engines on one database; closes at the end those that are still open."""
    engines: list[Engine] = []

    async def open(**settings: Any) -> tuple[Engine, FaultyStore]:
        machine = Computer()
        store = FaultyStore(store_for(url, machine))
        engine = Engine(url, store=store, machine=machine, **{"migrate": True, **settings})
        await engine.__aenter__()
        engines.append(engine)
        return engine, store

    yield open
    for engine in engines:
        await engine.close(0)


@pytest.fixture
def postgres_url(cleared_url: str) -> str:
    """The URL of a PostgreSQL database as good as new."""
    return cleared_url


@pytest.fixture
async def opened(store_url: str) -> AsyncIterator[Open]:
    """Opens engines on one database of each kind."""
    async with engines_on(store_url) as open:
        yield open


async def until(true: Callable[[], Any]) -> None:
    """Let the event loop turn until something has happened."""
    async with asyncio.timeout(LIMIT):
        for turn in count():
            if true():
                return
            await asyncio.sleep(0 if turn < QUICK_TURNS else A_MOMENT)


async def until_row(engine: Engine, id: str, true: Callable[[Any], Any]) -> Any:
    """Look at a row again and again until it is as wanted."""
    async with asyncio.timeout(LIMIT):
        while not true(row := await engine.row(id)):
            await asyncio.sleep(A_MOMENT)
    return row


async def until_gone(engine: Engine, id: str) -> None:
    """Look for a row again and again until there is none."""
    async with asyncio.timeout(LIMIT):
        with suppress(ProcessNotFound):
            while await engine.row(id):
                await asyncio.sleep(A_MOMENT)


async def lose(engine: Engine, store: FaultyStore) -> None:
    """The worker of this engine is gone, in the middle of everything that it does."""
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    for instance in list(engine.worker.scheduler.instances.values()):
        engine.worker.scheduler.drop(instance)
    await store.retire(engine.worker.incarnation.id, None, died=True)
