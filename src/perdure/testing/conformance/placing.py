"""Kinds with limits: what has a place among the processes of its kind, who gets one, and when it is given back."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.kind import FULL_LOOK, KIND_MARK, PLACE, starts_of
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import Load, Queue, QueueDepth
from perdure.testing.conformance.racing import Crowded
from perdure.testing.conformance.trial import KIND, LEASE, Trial, finished, forced, only, released, resting

ROW = KIND_MARK + KIND
MINUTE = 60 * SECOND


class Placing(Crowded):
    """Claims of kinds that have limits."""

    async def _limit_kind(self, trial: Trial, **limits: Any) -> Queue:
        known = {row.name: row for row in await trial.store.records(Queue)}
        old = known.get(ROW, Queue(ROW, 0))
        fields = {"version": old.version + 1, "changed_at": await trial.time.now(), "concurrency": None, "rate": None}
        new = replace(old, **(fields | limits))
        return next(row for row in await trial.store.records(Queue, [new]) if row.name == ROW)

    async def _started(self, trial: Trial, number: int, **fields: Any) -> list[Process]:
        rows = [trial.process(**fields) for _ in range(number)]
        await trial.store.start([Start(row) for row in rows])
        return rows

    async def _taken(self, trial: Trial, worker: bytes, limit: int = 100) -> list[Process]:
        return [one.process for one in (await trial.claim(worker, limit)).claimed]

    async def _begun(self, trial: Trial, worker: bytes, limit: int = 100) -> int:
        """How many a claim took; they have ended now."""
        taken = await self._taken(trial, worker, limit)
        for row in taken:
            await trial.done(finished(row))
        return len(taken)

    async def _placed(self, trial: Trial) -> int:
        return sum(row.share == PLACE for row in await trial.stored() if not row.final)

    async def test_no_more_processes_of_a_kind_run_than_its_limit(self, trial: Trial) -> None:
        one, two = await trial.worker(), await trial.worker("there")
        await self._limit_kind(trial, concurrency=3)
        await self._started(trial, 10)
        other = await trial.started(kind="else")
        assert len(await self._taken(trial, one, 2)) == 2
        assert len(await self._taken(trial, two)) == 1
        assert await self._taken(trial, one) == []
        hosted = (("else", other.code), (KIND, other.code))
        assert only((await trial.claim(one, hosted=hosted)).claimed).process.id == other.id

    async def test_what_sleeps_keeps_its_place_and_goes_on_without_another_one(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 2)
        [first] = await self._taken(trial, worker)
        await trial.done(released(first, await trial.time.now() + MINUTE))
        assert await self._taken(trial, worker) == []
        await trial.time.advance(61)
        [again] = await self._taken(trial, worker)
        assert (again.id, again.share) == (first.id, PLACE)
        await trial.done(resting(again, await trial.time.now() + MINUTE))
        assert await self._taken(trial, worker) == []
        await trial.send(again.id)
        assert [row.id for row in await self._taken(trial, worker)] == [first.id]

    async def test_each_end_gives_a_place_back(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 4)
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            [row] = await self._taken(trial, worker)
            over = await trial.done(finished(row, status))
            assert over.share is None
        assert len(await self._taken(trial, worker)) == 1

    async def test_a_held_or_broken_process_keeps_its_place(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=2)
        await self._started(trial, 3)
        now = await trial.time.now()
        for row, status in zip(await self._taken(trial, worker), (Status.HELD, Status.BROKEN), strict=True):
            await trial.done(resting(row, now + MINUTE, status))
        assert await self._taken(trial, worker) == []

    async def test_a_process_that_is_reopened_waits_for_a_place_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 1)
        [row] = await self._taken(trial, worker)
        over = await trial.done(finished(row, Status.FAILED))
        await self._started(trial, 1)
        [other] = await self._taken(trial, worker)
        again = await trial.done(forced(over, status=Status.RUNNING, run=over.run + 1, events=(), result=None))
        assert (again.status, again.share) == (Status.RUNNING, None)
        assert await self._taken(trial, worker) == []
        await trial.done(finished(other))
        assert [row.id for row in await self._taken(trial, worker)] == [again.id]

    async def test_a_dead_workers_process_keeps_its_place_and_is_taken_over(self, trial: Trial) -> None:
        one, two = await trial.worker(), await trial.worker("there")
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 2)
        [first] = await self._taken(trial, one)
        await trial.time.advance(LEASE // SECOND + 1)
        taken = only((await trial.claim(two)).claimed)
        assert (taken.process.id, taken.was_owned_by) == (first.id, one)
        freed = await trial.done(forced(taken.process))
        assert freed.share == PLACE
        assert [row.id for row in await self._taken(trial, one)] == [first.id]

    async def test_places_are_given_by_priority_and_then_by_the_time_of_the_start(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        order = []
        for priority in (4, 4, 9, 0):
            order += await self._started(trial, 1, priority=priority)
            await trial.time.advance(1)
        taken = []
        for _ in order:
            [row] = await self._taken(trial, worker)
            taken.append(row.id)
            await trial.done(finished(row))
        assert taken == [order[3].id, order[0].id, order[1].id, order[2].id]

    async def test_a_message_gives_nobody_a_place(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        first, last = await self._started(trial, 1), await self._started(trial, 1)
        [row] = await self._taken(trial, worker)
        assert row.id == first[0].id
        await trial.send(last[0].id)
        answer = await trial.claim(worker, among=(last[0].id,))
        assert (answer.claimed, answer.next_due_at is not None) == ((), True)
        assert (await trial.claim(worker, only=last[0].id)).claimed == ()
        assert (await trial.row(last[0].id)).owner is None

    async def test_one_that_is_claimed_by_its_id_gets_a_place_if_there_is_room(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1, rate=5)
        first, last = await self._started(trial, 2)
        taken = only((await trial.claim(worker, only=last.id)).claimed).process
        assert (taken.id, taken.share) == (last.id, PLACE)
        assert (await trial.claim(worker, only=first.id)).claimed == ()

    async def test_no_more_start_in_any_stretch_of_time_than_the_rate_says(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, rate=3, per=MINUTE)
        await self._started(trial, 10)
        assert await self._begun(trial, worker, 2) == 2
        await trial.time.advance(20)
        assert await self._begun(trial, worker) == 1
        await trial.time.advance(39)
        answer = await trial.claim(worker)
        assert (answer.claimed, answer.next_due_at) == ((), answer.now + SECOND)
        await trial.time.advance(1)
        assert await self._begun(trial, worker) == 2
        assert await self._begun(trial, worker) == 0
        await trial.time.advance(20)
        assert await self._begun(trial, worker) == 1

    async def test_very_many_starts_are_counted_in_parts_of_their_time(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, rate=1001, per=MINUTE)
        for _ in range(4):
            await self._started(trial, 1)
            assert len(await self._taken(trial, worker)) == 1
            await trial.time.advance(0.001)
        [row] = [row for row in await trial.store.records(Queue) if row.name == ROW]
        assert len(starts_of(row)) <= 2
        assert sum(number for _, number in starts_of(row)) == 4

    async def test_who_waits_is_looked_at_again_soon(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 2)
        taken = await trial.claim(worker)
        assert taken.next_due_at is not None
        answer = await trial.claim(worker)
        assert (answer.claimed, answer.next_due_at) == ((), answer.now + FULL_LOOK)
        await trial.done(finished(only(taken.claimed).process))
        assert len(await self._taken(trial, worker)) == 1
        assert (await trial.claim(worker)).next_due_at is None

    async def test_a_delayed_start_takes_no_place_before_its_time(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        later = await trial.time.now() + MINUTE
        await self._started(trial, 1, due_at=later)
        answer = await trial.claim(worker)
        assert (answer.claimed, answer.next_due_at) == ((), later)
        await self._started(trial, 1)
        assert len(await self._taken(trial, worker)) == 1

    async def test_what_runs_when_a_kind_gets_limits_has_its_place_already(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._started(trial, 3)
        held, asleep, idle = await self._taken(trial, worker)
        await trial.done(released(asleep, await trial.time.now() + MINUTE))
        await trial.done(resting(idle, await trial.time.now() + MINUTE))
        await self._started(trial, 2)
        await self._limit_kind(trial, concurrency=4)
        assert await self._placed(trial) == 3
        assert len(await self._taken(trial, worker)) == 1
        await trial.done(finished(held))
        assert len(await self._taken(trial, worker)) == 1

    async def test_a_limit_below_what_runs_stops_nothing_and_admits_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=3)
        await self._started(trial, 5)
        rows = await self._taken(trial, worker)
        await self._limit_kind(trial, concurrency=1)
        assert await self._placed(trial) == 3
        for row in rows[:2]:
            await trial.done(finished(row))
            assert await self._taken(trial, worker) == []
        await trial.done(finished(rows[2]))
        assert len(await self._taken(trial, worker)) == 1

    async def test_without_limits_all_go_on_and_with_new_ones_they_count(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 4)
        assert len(await self._taken(trial, worker)) == 1
        await self._limit_kind(trial)
        assert len(await self._taken(trial, worker)) == 3
        await self._limit_kind(trial, concurrency=5)
        await self._started(trial, 2)
        assert len(await self._taken(trial, worker)) == 1

    async def test_a_limit_that_is_raised_gives_no_place_to_what_waits_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 1)
        [row] = await self._taken(trial, worker)
        over = await trial.done(finished(row))
        await trial.done(forced(over, status=Status.RUNNING, run=over.run + 1, events=(), result=None))
        await self._limit_kind(trial, concurrency=2)
        assert await self._placed(trial) == 0

    async def test_no_worker_starts_one_as_its_own(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        mine = trial.process(owner=worker, token=1, version=0)
        free = trial.process()
        answers = await trial.store.start([Start(mine, lease=LEASE), Start(free)])
        assert [answer.verdict for answer in answers] == [StartVerdict.LIMITED, StartVerdict.CREATED]
        ended = replace(mine, owner=None, status=Status.COMPLETED, result=b"1", opened_at=1, created_at=1)
        [answer] = await trial.store.start([Start(ended)])
        assert answer.verdict is StartVerdict.LIMITED
        [answer] = await trial.store.start([Start(replace(mine, owner=None, token=0))])
        assert answer.verdict is StartVerdict.CREATED

    async def test_one_that_has_begun_elsewhere_may_bring_its_place(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=1)
        begun = trial.process(token=3, share=PLACE, opened_at=1, created_at=1)
        [answer] = await trial.store.start([Start(begun)])
        assert answer.verdict is StartVerdict.CREATED
        await self._started(trial, 1)
        assert [row.id for row in await self._taken(trial, worker)] == [begun.id]

    async def test_a_command_that_was_outrun_leaves_one_alone_that_waits_for_a_place(self, trial: Trial) -> None:
        await self._limit_kind(trial, concurrency=1)
        [waiting] = await self._started(trial, 1)
        row = await trial.row(waiting.id)
        assert (await trial.claim(trial.ids.new_id(), only=row.id, seize=True)).claimed == ()
        assert await trial.row(row.id) == row

    async def test_a_suspect_waits_for_its_quarantine_and_not_for_a_place(self, trial: Trial) -> None:
        worker, alone = await trial.worker(), await trial.worker("alone")
        await self._limit_kind(trial, concurrency=1)
        await self._started(trial, 1)
        assert len(await self._taken(trial, worker)) == 1
        [suspect] = await self._started(trial, 1, deaths=2)
        assert await self._taken(trial, worker) == []
        assert only((await trial.claim(alone, alone=True)).claimed).process.id == suspect.id

    async def test_places_and_those_who_wait_for_one_are_counted(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit_kind(trial, concurrency=2)
        await self._started(trial, 5)
        assert len(await self._taken(trial, worker)) == 2
        assert await trial.store.records(Load) == [Load(ROW, None, 1, 2)]
        [depth] = await trial.store.records(QueueDepth)
        assert (depth.name, depth.waiting, depth.delayed) == (ROW, 3, 0)

    async def test_many_claims_at_once_admit_no_more_than_there_is_room_for(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        workers = [await trial.worker(str(number)) for number in range(8)]
        await self._limit_kind(trial, concurrency=7, rate=30, per=3600 * SECOND)
        await self._started(trial, 60)
        begun = 0
        for _ in range(8):
            answers = await asyncio.gather(*(crowd[number % 4].claim(worker) for number, worker in enumerate(workers)))
            taken = [one.process for answer in answers for one in answer.claimed]
            begun += len(taken)
            assert await self._placed(trial) <= 7
            for row in taken:
                await trial.done(finished(row))
        assert begun <= 30
        while more := await self._begun(trial, workers[0]):
            begun += more
        assert begun == 30
