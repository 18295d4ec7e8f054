"""Claims of what rests: who has a process in memory may go on with it, due or not, if nobody had it since."""

from __future__ import annotations

from random import Random
from typing import Any

from perdure.clock import SECOND
from perdure.kernel.claim import ClaimAnswer
from perdure.kernel.kind import KIND_MARK
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import Queue
from perdure.limits import SUSPECT_DEATHS
from perdure.testing.conformance.trial import HOSTED, LEASE, Trial, finished, forced, only, released, resting

MIB = 1024 * 1024


class Forgetful(dict[bytes, tuple[int, int]]):
    """Rows of which each is known once."""

    def get(self, id: bytes, default: Any = None) -> Any:
        """The row, which nobody gets again."""
        return self.pop(id, default)


class Recalling:
    """Sentences about claims of processes that the claimant has in memory."""

    @staticmethod
    async def _recall(trial: Trial, worker: bytes, *rows: Process, limit: int = 100) -> ClaimAnswer:
        known = {row.id: (row.token, row.version) for row in rows}
        hosted = (*HOSTED, ("@bank", "1"))
        return await trial.claim(worker, limit, among=tuple(known), cached=known, resting=True, hosted=hosted)

    async def test_what_rests_is_taken_due_or_not(self, trial: Trial) -> None:
        worker, now = await trial.worker(), await trial.time.now()
        idle = await trial.done(resting(await trial.owned(worker), now + 3600 * SECOND))
        asleep = await trial.done(released(await trial.owned(worker), now + 60 * SECOND))
        due = await trial.done(released(await trial.owned(worker), now))
        answer = await self._recall(trial, worker, idle, asleep, due)
        assert {one.process.id for one in answer.claimed} == {idle.id, asleep.id, due.id}
        for one in answer.claimed:
            assert await trial.row(one.process.id) == one.process
            assert (one.process.owner, one.process.due_at) == (worker, answer.now + LEASE)
            assert (one.process.token, one.process.reminder, one.was_owned_by, one.cached) == (2, False, None, True)

    async def test_what_has_come_meanwhile_is_read(self, trial: Trial) -> None:
        worker, now = await trial.worker(), await trial.time.now()
        row = await trial.done(resting(await trial.owned(worker), now + 3600 * SECOND))
        await trial.send(row.id)
        taken = only((await self._recall(trial, worker, row)).claimed)
        assert ([one.number for one in taken.messages], taken.events[-1].number) == ([1], row.events)

    async def test_what_the_claimant_forgets_meanwhile_is_read_as_it_said(self, trial: Trial) -> None:
        worker, now = await trial.worker(), await trial.time.now()
        row = await trial.done(released(await trial.owned(worker), now, steps=3))
        known = Forgetful({row.id: (row.token, row.version)})
        taken = only((await trial.claim(worker, cached=known)).claimed)
        numbers = [event.number for event in taken.events]
        assert (taken.cached, numbers) in ((True, [row.events]), (False, [*range(1, row.events + 1)]))

    async def test_what_has_moved_since_is_left_alone(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        now = await trial.time.now()
        rested = [await trial.done(resting(await trial.owned(worker), now + 3600 * SECOND)) for _ in range(4)]
        owned = only((await trial.claim(other, only=rested[0].id)).claimed).process
        come_back = await trial.done(resting(await self._taken_over(trial, other, rested[1]), now + 3600 * SECOND))
        ended = await trial.done(finished(await self._taken_over(trial, other, rested[2])))
        held = await trial.done(forced(rested[3], status=Status.HELD, reminder=True))
        rows = [owned, come_back, ended, held]
        answer = await self._recall(trial, worker, *rested)
        assert (answer.claimed, answer.next_due_at, answer.alive) == ((), None, True)
        assert [await trial.row(row.id) for row in rows] == rows

    async def test_what_no_claim_would_take_is_left_alone(self, trial: Trial) -> None:
        worker, now = await trial.worker(), await trial.time.now()
        foreign = await trial.started(kind="refund")
        suspect = await trial.started(deaths=SUSPECT_DEATHS)
        mine = await trial.owned(worker)
        held = await trial.done(resting(await trial.owned(worker), now + SECOND, Status.HELD))
        rows = [foreign, suspect, mine, held]
        answer = await self._recall(trial, worker, *rows)
        assert (answer.claimed, answer.next_due_at, answer.alive) == ((), None, True)
        assert [await trial.row(row.id) for row in rows] == rows

    async def test_what_has_limits_is_left_to_other_claims(self, trial: Trial) -> None:
        worker, free = await trial.worker(), await trial.started()
        await trial.store.records(Queue, [Queue("bank", 1, concurrency=5)])
        task = await trial.started(kind="@bank")
        assert only((await self._recall(trial, worker, task, free)).claimed).process.id == free.id
        waits = await trial.started()
        await trial.store.records(Queue, [Queue(KIND_MARK + waits.kind, 1, concurrency=5)])
        assert (await self._recall(trial, worker, waits)).claimed == ()
        assert [await trial.row(row.id) for row in (task, waits)] == [task, waits]

    async def test_no_more_are_taken_than_were_asked_for(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.started() for _ in range(9)]
        assert len((await self._recall(trial, worker, *rows, limit=2)).claimed) == 2

    async def test_no_more_are_taken_than_one_answer_holds(self, trial: Trial) -> None:
        assert 1 <= await self._large_recalled(trial) < 20

    async def _large_recalled(self, trial: Trial) -> int:
        """How many of 20 are taken at once that hold a MiB each, half as much behind a seal."""
        large = b'"%s"' % Random(1).randbytes(MIB // 2).hex().encode()
        rows = [await trial.started(input=large) for _ in range(20)]
        return len((await self._recall(trial, await trial.worker(), *rows)).claimed)

    async def test_an_ended_incarnation_takes_nothing(self, trial: Trial) -> None:
        worker, row = await trial.worker(), await trial.started()
        await trial.store.retire(worker, None, died=False)
        answer = await self._recall(trial, worker, row)
        assert (answer.claimed, answer.alive) == ((), False)
        assert await trial.row(row.id) == row

    @staticmethod
    async def _taken_over(trial: Trial, worker: bytes, row: Process) -> Process:
        return only((await trial.claim(worker, only=row.id)).claimed).process
