"""Hints: who is woken when something became due or ended, and that polling alone would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure.clock import SECOND
from perdure.kernel.commit import Start
from perdure.store.base import Store
from perdure.store.notifications import Notification
from perdure.testing.conformance.ground import Ground
from perdure.testing.conformance.trial import LEASE, Trial, finished, released

PATIENCE = 5.0
"""Seconds after which a hint that did not come is a failure; nothing waits that long when all is well."""


class Ear:
    """Hears the hints of one store."""

    def __init__(self) -> None:
        self.due = asyncio.Event()
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def hear(self, notification: Notification) -> None:
        """Called by the store, from whatever thread."""
        if notification.any_due:
            self._loop.call_soon_threadsafe(self.due.set)
        if notification.any_done:
            self._loop.call_soon_threadsafe(self.done.set)


@asynccontextmanager
async def _listening(trial: Trial, *, elsewhere: bool) -> AsyncIterator[tuple[Ear, Store]]:
    """An ear at this store, or at another one on the same database."""
    store = trial.ground.store() if elsewhere else trial.store
    if elsewhere:
        await store.open()
    ear = Ear()
    stop = store.watch(ear.hear)
    try:
        yield ear, store
    finally:
        stop()
        stop()
        if elsewhere:
            await store.close()


class Waking:
    """``watch``: hints for this store's own writes and for those of other stores on the database."""

    @pytest.fixture(params=["here", "elsewhere"])
    def elsewhere(self, request: pytest.FixtureRequest, ground: Ground) -> bool:
        """Whether the ear is at another store on the same database."""
        if not ground.hints:
            pytest.skip("nobody is told anything here; polling does it all")
        if request.param == "elsewhere" and not ground.shared:
            pytest.skip("one store at a time on this database")
        return bool(request.param == "elsewhere")

    async def _waits(self, event: asyncio.Event) -> None:
        async with asyncio.timeout(PATIENCE):
            await event.wait()

    async def test_a_start_wakes_whoever_may_take_it(self, trial: Trial, elsewhere: bool) -> None:
        async with _listening(trial, elsewhere=elsewhere) as (ear, _):
            await trial.started()
            await self._waits(ear.due)

    async def test_a_message_wakes_whoever_may_take_its_process(self, trial: Trial, elsewhere: bool) -> None:
        row = await trial.started(due_at=await trial.time.now() + 3600 * SECOND)
        async with _listening(trial, elsewhere=elsewhere) as (ear, _):
            await trial.send(row.id)
            await self._waits(ear.due)

    async def test_a_message_to_an_owned_row_wakes_its_owner(self, trial: Trial, elsewhere: bool) -> None:
        row = await trial.owned(await trial.worker())
        async with _listening(trial, elsewhere=elsewhere) as (ear, _):
            await trial.send(row.id)
            await self._waits(ear.due)

    async def test_an_end_wakes_whoever_waits_for_it(self, trial: Trial, elsewhere: bool) -> None:
        await trial.started()
        worker = await trial.worker()
        await trial.time.advance(1)
        [taken] = (await trial.claim(worker)).claimed
        async with _listening(trial, elsewhere=elsewhere) as (ear, _):
            await trial.commit(finished(taken.process))
            await self._waits(ear.done)

    async def test_a_row_released_for_now_wakes_whoever_may_take_it(self, trial: Trial, elsewhere: bool) -> None:
        row = await trial.owned(await trial.worker())
        async with _listening(trial, elsewhere=elsewhere) as (ear, _):
            await trial.commit(released(row, await trial.time.now()))
            await self._waits(ear.due)

    async def test_a_stopped_watch_calls_nobody(self, trial: Trial, elsewhere: bool) -> None:
        async with _listening(trial, elsewhere=elsewhere) as (ear, store):
            deaf = Ear()
            store.watch(deaf.hear)()
            await trial.store.start([Start(trial.process(), lease=LEASE)])
            await self._waits(ear.due)
            await asyncio.sleep(0)
            assert not deaf.due.is_set()
