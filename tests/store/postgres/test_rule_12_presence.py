"""Rule 12: the lock that proves life comes back with the connection, and nobody is taken for dead by a restart."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from perdure.clock import Computer
from perdure.errors import StoreUnavailable
from perdure.kernel.worker import WorkerRow
from perdure.store.notifications import Notification
from perdure.store.postgres.store import PostgresStore
from perdure.testing.postgres import Server

SILENCE = 15_000_000
machine = Computer()


@pytest.fixture
async def pair(own_server: Server) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two stores on a database of a server that may be killed."""
    url = own_server.fresh_database()
    stores = (PostgresStore(url), PostgresStore(url))
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until it is so; a store that is away just now counts as no."""
    async with asyncio.timeout(30):
        while True:
            try:
                if await found():
                    return
            except StoreUnavailable:
                continue


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
async def test_after_a_restart_of_the_server_the_lock_is_taken_again_and_the_time_of_it_is_told(
    own_server: Server, pair: tuple[PostgresStore, PostgresStore], how: signal.Signals
) -> None:
    here, there = pair
    heard: list[Notification] = []
    here.watch(heard.append)
    worker = await here.enlist(WorkerRow(machine.new_id(), "here"), SILENCE)
    assert worker.locked
    standing_since = here.backend.standing_since
    assert standing_since is not None
    await asyncio.to_thread(own_server.restart, how)

    async def held_again() -> bool:
        [seen] = await there.workers()
        # What was told meanwhile was missed: anything may have happened, it is said once the line stands again.
        return not seen.lock_free and Notification(some_due=True, some_done=True, some_published=True) in heard

    await until(held_again)
    assert here.backend.standing_since is not None
    assert standing_since < here.backend.standing_since < math.inf


async def test_a_worker_that_has_just_begun_knows_of_a_server_whose_sessions_stand_for_long_and_of_one_that_came_back(
    own_server: Server, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    here, _ = pair
    opened = machine.monotonic()
    fresh = PostgresStore(here.url)
    await fresh.open()
    try:
        assert fresh.backend.standing_since is not None
        assert fresh.backend.standing_since <= opened
    finally:
        await fresh.close()
    stopped = machine.monotonic()
    await asyncio.to_thread(own_server.restart, signal.SIGKILL)
    after = PostgresStore(here.url)
    await after.open()
    try:
        assert after.backend.standing_since is not None
        assert after.backend.standing_since > stopped
    finally:
        await after.close()


async def test_while_the_session_that_looks_after_locks_is_lost_no_time_is_long_enough_after_its_return(
    own_server: Server, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    here, _ = pair
    await asyncio.to_thread(own_server.stop, signal.SIGKILL)
    async with asyncio.timeout(30):
        while here.backend.standing_since != math.inf:
            await asyncio.sleep(0)
    # The connection that reads may come back before that one: the free locks of others mean nothing until both are.
    await asyncio.to_thread(own_server.start)
    async with asyncio.timeout(30):
        while here.backend.standing_since == math.inf:
            await asyncio.sleep(0)
    assert here.backend.standing_since is not None


async def test_the_lock_of_a_lost_session_is_free_at_once_while_the_worker_still_beats(
    own_server: Server, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    here, there = pair
    await here.enlist(WorkerRow(machine.new_id(), "here"), SILENCE)
    await here.close()
    [seen] = await there.workers()
    assert (seen.locked, seen.lock_free, seen.ended_at) == (True, True, None)


async def test_looking_at_a_lock_never_takes_it(own_server: Server, pair: tuple[PostgresStore, PostgresStore]) -> None:
    here, there = pair
    ids = [machine.new_id() for _ in range(3)]
    for id in ids:
        await here.enlist(WorkerRow(id, "gone"), SILENCE)
    await here.close()
    looks = [await asyncio.gather(*(there.workers() for _ in range(5))) for _ in range(3)]
    assert all(seen.lock_free for rounds in looks for look in rounds for seen in look)
    again = PostgresStore(here.url)
    await again.open()
    assert all([(await again.enlist(WorkerRow(id, "gone"), SILENCE)).locked for id in ids])
    assert not any(seen.lock_free for seen in await there.workers())
    await again.close()


async def test_every_connection_comes_back_by_itself_after_a_crash_of_the_server(
    own_server: Server, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    here, _ = pair
    before = await here.now()
    await asyncio.to_thread(own_server.restart, signal.SIGKILL)

    async def answers() -> bool:
        await here.enlist(WorkerRow(machine.new_id(), "here"), SILENCE)
        return await here.now() > before

    await until(answers)
    assert len(await here.workers()) >= 1


async def test_a_server_that_is_away_makes_the_store_unavailable_and_opening_says_where(own_server: Server) -> None:
    url = own_server.fresh_database()
    store = PostgresStore(url)
    await store.open()
    await asyncio.to_thread(own_server.stop)
    try:
        with pytest.raises(StoreUnavailable):
            await store.now()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
            await PostgresStore(url).open()
    finally:
        await asyncio.to_thread(own_server.start)

    async def back() -> bool:
        return await store.now() > 0

    await until(back)
    await store.close()
