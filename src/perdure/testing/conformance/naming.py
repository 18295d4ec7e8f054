"""Notifications: a watch says which processes are due, have ended or have messages, and those named are claimed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure.clock import SECOND
from perdure.kernel.commit import Start
from perdure.kernel.queue import Queue
from perdure.limits import SUSPECT_DEATHS
from perdure.store.notifications import NAMED, Notification, tails
from perdure.testing.conformance.ground import Ground
from perdure.testing.conformance.trial import LEASE, Trial, finished, only, released, resting

PATIENCE = 5.0


class Listener:
    """Hears what one store names."""

    def __init__(self) -> None:
        self.notification: asyncio.Queue[Notification] = asyncio.Queue()

    async def named(self) -> Notification:
        """The next notification that names something."""
        async with asyncio.timeout(PATIENCE):
            while True:
                notification = await self.notification.get()
                if notification.kinds or notification.ended or notification.told:
                    return notification


@asynccontextmanager
async def _listening(trial: Trial) -> AsyncIterator[Listener]:
    """A listener at another store on the same database."""
    store = trial.ground.store()
    await store.open()
    listener = Listener()
    stop = store.watch(listener.notification.put_nowait)
    try:
        yield listener
    finally:
        stop()
        await store.close()


class Naming:
    """``watch`` and its notifications, and claims ``among`` those that were named."""

    @pytest.fixture
    def shared_and_hinted(self, ground: Ground) -> None:
        """Another store can listen on this database."""
        if not (ground.hints and ground.shared):
            pytest.skip("nobody is told anything here; polling does it all")

    @pytest.mark.usefixtures("shared_and_hinted")
    async def test_a_start_names_who_is_due(self, trial: Trial) -> None:
        async with _listening(trial) as listener:
            rows = [trial.process(), trial.process(kind="refund")]
            await trial.store.start([Start(row) for row in rows])
            notification = await listener.named()
            assert (set(notification.kinds), set(notification.due)) == ({"order", "refund"}, {row.id for row in rows})

    @pytest.mark.usefixtures("shared_and_hinted")
    async def test_many_that_are_due_at_once_are_named_by_their_kinds(self, trial: Trial) -> None:
        async with _listening(trial) as listener:
            await trial.store.start([Start(trial.process()) for _ in range(NAMED + 1)])
            assert await listener.named() == Notification(kinds=("order",))

    @pytest.mark.usefixtures("shared_and_hinted")
    async def test_ends_are_named_by_the_tails_of_their_ids(self, trial: Trial) -> None:
        worker = await trial.worker()
        for _ in range(40):
            await trial.started()
        await trial.time.advance(1)
        rows = [one.process for one in (await trial.claim(worker)).claimed]
        async with _listening(trial) as listener:
            await trial.store.commit([finished(row) for row in rows])
            notification = await listener.named()
            assert sorted(notification.ended) == sorted(tails([row.id for row in rows]))

    @pytest.mark.usefixtures("shared_and_hinted")
    async def test_messages_to_owned_rows_name_them(self, trial: Trial) -> None:
        owned = await trial.owned(await trial.worker())
        async with _listening(trial) as listener:
            await trial.send(owned.id)
            assert await listener.named() == Notification(told=(owned.id,))

    async def test_a_claim_among_some_takes_those_and_no_others(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.started() for _ in range(4)]
        await trial.time.advance(1)
        answer = await trial.claim(worker, among=(rows[2].id, rows[0].id, trial.ids.new_id()))
        assert {one.process.id for one in answer.claimed} == {rows[0].id, rows[2].id}
        assert {one.process.owner for one in answer.claimed} == {worker}
        assert {one.was_owned_by for one in answer.claimed} == {None}
        assert [await trial.row(row.id) for row in rows[1::2]] == rows[1::2]
        for one in answer.claimed:
            assert await trial.row(one.process.id) == one.process
            assert (one.process.token, one.process.due_at) == (1, answer.now + LEASE)

    async def test_a_claim_among_some_leaves_what_a_claim_would_leave(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        now = await trial.time.now()
        asleep = await trial.started(due_at=now + 60 * SECOND)
        foreign = await trial.started(kind="refund")
        suspect = await trial.started(deaths=SUSPECT_DEATHS)
        lapsed = await trial.owned(other)
        rest = await trial.done(resting(await trial.owned(other), now))
        ended = await trial.done(finished(await trial.owned(other)))
        await trial.time.advance(30)
        rows = [asleep, foreign, suspect, lapsed, rest, ended]
        answer = await trial.claim(worker, among=tuple(row.id for row in rows))
        assert (answer.claimed, answer.next_due_at, answer.alive) == ((), None, True)
        assert [await trial.row(row.id) for row in rows] == rows

    async def test_a_claim_among_some_reads_what_they_hold(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.done(released(await trial.owned(worker), await trial.time.now()))
        await trial.send(row.id)
        await trial.time.advance(1)
        taken = only((await trial.claim(worker, among=(row.id,))).claimed)
        assert ([event.number for event in taken.events], [one.number for one in taken.messages]) == ([1], [1])

    async def test_a_task_of_a_queue_with_limits_is_left_to_a_claim_of_all(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.store.records(Queue, [Queue("bank", 1, concurrency=1)])
        row, free = await trial.started(kind="@bank"), await trial.started(kind="@post")
        await trial.time.advance(1)
        hosted = (("@bank", row.code), ("@post", row.code))
        answer = await trial.claim(worker, among=(row.id, free.id), hosted=hosted)
        assert only(answer.claimed).process.id == free.id
        assert answer.next_due_at is not None
        assert answer.next_due_at <= answer.now
        assert await trial.row(row.id) == row

    async def test_a_claim_among_some_by_an_ended_incarnation_takes_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.started()
        await trial.store.retire(worker, None, died=False)
        answer = await trial.claim(worker, among=(row.id,))
        assert (answer.claimed, answer.alive) == ((), False)
        assert await trial.row(row.id) == row
