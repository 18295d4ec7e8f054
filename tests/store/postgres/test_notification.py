"""Hints cost a lock of the whole database at COMMIT: at most one for a batch and channel, and none without need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from perdure.kernel.commit import Start
from perdure.kernel.process import Process
from perdure.store.notifications import Notification, of_channel
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE, finished, forced, going_on, released
from tests.store.ground_postgres import PostgresGround

pytestmark = pytest.mark.usefixtures("warm")


class Ear:
    """Hears the notifications of both channels on a connection of its own."""

    def __init__(self, ground: PostgresGround) -> None:
        self.outside = ground.outside
        self.heard: list[str] = []

    def hear(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        """One notification."""
        self.heard.append(channel)

    async def since(self) -> list[str]:
        """What has been heard since the last time; a round trip brings in what is under way."""
        await self.outside.execute("SELECT 1")
        heard, self.heard = self.heard, []
        return sorted(heard)


@pytest.fixture
async def ear(postgres: PostgresGround) -> AsyncIterator[Ear]:
    """An ear on both channels."""
    made = Ear(postgres)
    for channel in ("perdure_due", "perdure_done"):
        await postgres.outside.add_listener(channel, made.hear)
    yield made
    for channel in ("perdure_due", "perdure_done"):
        await postgres.outside.remove_listener(channel, made.hear)


async def owned(trial: Trial, worker: bytes, size: int) -> list[Process]:
    """Processes that their starter owns at once."""
    now = await trial.time.now()
    rows = [trial.process(owner=worker, token=1, created_at=now, opened_at=now) for _ in range(size)]
    await trial.store.start([Start(row, lease=LEASE) for row in rows])
    return [await trial.row(row.id) for row in rows]


async def test_a_batch_of_due_processes_is_told_of_once(trial: Trial, ear: Ear) -> None:
    await trial.store.start([Start(trial.process()) for _ in range(100)])
    assert await ear.since() == ["perdure_due"]


async def test_sleepers_and_processes_started_as_owned_are_not_told_of(trial: Trial, ear: Ear) -> None:
    worker = await trial.worker()
    later = await trial.time.now() + 1_000_000
    await trial.store.start([Start(trial.process(due_at=later)) for _ in range(10)])
    rows = await owned(trial, worker, 10)
    await trial.store.commit([going_on(row) for row in rows])
    assert await ear.since() == []


@pytest.mark.parametrize("size", [1, 50])
async def test_ends_of_processes_that_were_started_as_owned_are_not_told_of(trial: Trial, ear: Ear, size: int) -> None:
    rows = await owned(trial, await trial.worker(), size)
    await trial.store.commit([finished(row) for row in rows])
    assert await ear.since() == []


@pytest.mark.parametrize("size", [1, 50])
async def test_ends_of_processes_that_somebody_else_started_are_told_of_once(trial: Trial, ear: Ear, size: int) -> None:
    worker = await trial.worker()
    for _ in range(size):
        await trial.started()
    await trial.time.advance(1)
    claimed = (await trial.claim(worker)).claimed
    await ear.since()
    await trial.store.commit([finished(one.process) for one in claimed])
    assert await ear.since() == ["perdure_done"]


async def test_a_batch_of_messages_is_told_of_once_whoever_owns_the_targets(trial: Trial, ear: Ear) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker), await trial.started()]
    await ear.since()
    await trial.store.send([trial.signal(row.id) for row in rows for _ in range(20)])
    assert await ear.since() == ["perdure_due"]
    ended = await trial.done(finished(replace(rows[0], inbox=20), seen=20))
    await ear.since()
    await trial.send(ended.id)
    assert await ear.since() == []


async def test_rows_freed_to_be_due_now_are_told_of_and_others_are_not(trial: Trial, ear: Ear) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(3)]
    now = await trial.time.now()
    await ear.since()
    await trial.done(released(rows[0], now + 1_000_000))
    assert await ear.since() == []
    await trial.done(released(rows[1], now))
    assert await ear.since() == ["perdure_due"]
    await trial.done(forced(rows[2]))
    assert await ear.since() == ["perdure_due"]


async def test_a_refused_commit_tells_nobody_anything(trial: Trial, ear: Ear) -> None:
    row = await trial.owned(await trial.worker())
    await ear.since()
    await trial.commit(finished(replace(row, token=9)))
    assert await ear.since() == []


async def test_however_many_have_published_at_once_each_is_named(trial: Trial, postgres: PostgresGround) -> None:
    ids = [trial.process().id for _ in range(450)]
    heard: list[Notification] = []
    whole = asyncio.Event()

    def hear(notification: Notification) -> None:
        heard.append(notification)
        if sum(len(one.published) for one in heard) >= len(ids):
            whole.set()

    stop = trial.store.watch(hear)
    await postgres.outside.execute("SELECT perdure.tell_published($1)", [UUID(bytes=id) for id in ids])
    await asyncio.wait_for(whole.wait(), 20)
    stop()
    assert [id for one in heard for id in one.published] == ids
    assert not any(one.some_published for one in heard) and len(heard) == 3


def test_what_is_no_list_of_ids_says_that_any_may_have_published() -> None:
    for payload in ("", "00", "zz", "0102030405060708090a0b0c0d0e0f"):
        assert of_channel("published", payload) == Notification(some_published=True)
