"""Queues with limits: what a claim may take of them, however many claim at once, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.claim import ClaimAnswer
from perdure.kernel.commit import Start
from perdure.kernel.process import Process
from perdure.kernel.queue import SHARES_A_LOOK, Queue
from perdure.testing.conformance.lettering import bulk, inside
from perdure.testing.conformance.racing import Crowded
from perdure.testing.conformance.trial import LEASE, Trial, finished, only, released

KIND = "@bank"
BANK = (KIND, "")
ALL = 1000


class Limiting(Crowded):
    """Claims of queues that have a row."""

    async def _limit(self, trial: Trial, **limits: Any) -> Queue:
        known = {queue.name: queue for queue in await trial.store.records(Queue)}
        old = known.get("bank", Queue("bank", 0))
        now = await trial.time.now()
        new = replace(old, **({"version": old.version + 1, "changed_at": now} | limits))
        written = {queue.name: queue for queue in await trial.store.records(Queue, [new])}
        assert written["bank"].version == new.version
        return written["bank"]

    async def _tasks(self, trial: Trial, *shares: str | None, **fields: Any) -> list[Process]:
        tasks = [trial.process(**({"kind": KIND, "code": "", "share": share} | fields)) for share in shares]
        await trial.store.start([Start(task) for task in tasks])
        return tasks

    async def _claim(self, trial: Trial, worker: bytes, limit: int = ALL, **fields: Any) -> ClaimAnswer:
        return await trial.claim(worker, limit, **({"hosted": (BANK,)} | fields))

    async def _running(self, trial: Trial) -> int:
        return sum(row.cost for row in await trial.stored() if row.owner is not None and row.kind == KIND)

    async def test_a_queue_without_a_row_has_no_limits(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._tasks(trial, *[None] * 20)
        assert len((await self._claim(trial, worker)).claimed) == 20

    async def test_no_more_runs_at_once_than_the_queue_allows(self, trial: Trial) -> None:
        one, two = await trial.worker(), await trial.worker("there")
        await self._limit(trial, concurrency=5)
        await self._tasks(trial, *[None] * 20)
        first = (await self._claim(trial, one, 3)).claimed
        answer = await self._claim(trial, two)
        assert (len(first), len(answer.claimed)) == (3, 2)
        assert (await self._claim(trial, one)).claimed == ()
        await trial.done(finished(first[0].process))
        await trial.done(released(first[1].process, await trial.time.now() + 3600 * SECOND))
        assert len((await self._claim(trial, two)).claimed) == 2
        assert await self._running(trial) == 5

    async def test_many_claims_at_once_take_no_more_than_there_is_room_for(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        workers = [await trial.worker(str(number)) for number in range(8)]
        await self._limit(trial, concurrency=7, share_concurrency=3)
        await self._tasks(trial, *"abcd" * 50)
        for _ in range(5):
            answers = await asyncio.gather(
                *(self._claim(crowd[number % 4], worker) for number, worker in enumerate(workers))
            )
            taken = [one.process for answer in answers for one in answer.claimed]
            rows = [row for row in await trial.stored() if row.owner is not None]
            assert len(rows) <= 7
            assert max(Counter(row.share for row in rows).values()) <= 3
            for row in taken[:4]:
                await trial.done(finished(row))

    async def test_costs_count_and_one_above_the_limit_runs_alone(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=5)
        large, *small = [*await self._tasks(trial, None, cost=9), *await self._tasks(trial, None, None, cost=2)]
        taken = only((await self._claim(trial, worker)).claimed).process
        assert (taken.id, taken.cost) == (large.id, 9)
        await trial.done(finished(taken))
        assert len((await self._claim(trial, worker)).claimed) == 2
        assert len(small) == 2

    async def test_what_costs_much_is_not_passed_by(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=5)
        await self._tasks(trial, None)
        await trial.time.advance(1)
        [large] = await self._tasks(trial, None, cost=5)
        await trial.time.advance(1)
        await self._tasks(trial, None, None, None)
        await trial.time.advance(1)
        first = only((await self._claim(trial, worker)).claimed)
        await trial.done(finished(first.process))
        assert only((await self._claim(trial, worker)).claimed).process.id == large.id

    async def test_shares_take_turns_whoever_came_first_and_with_how_much(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=6)
        await self._tasks(trial, *["loud"] * 100)
        await trial.time.advance(1)
        await self._tasks(trial, "quiet", "quiet", "shy", None)
        taken = [one.process.share for one in (await self._claim(trial, worker)).claimed]
        assert Counter(taken) == {"loud": 2, "quiet": 2, "shy": 1, None: 1}

    async def test_the_turn_is_of_the_share_of_which_least_runs_then_of_the_next_one(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial)
        order = []
        for share in ("a", "a", "b", "c"):
            order += await self._tasks(trial, share)
            await trial.time.advance(1)
        taken = [only((await self._claim(trial, worker, 1)).claimed).process.id for _ in range(4)]
        assert taken == [order[0].id, order[2].id, order[3].id, order[1].id]

    async def test_whose_turn_it_was_is_remembered_where_each_claim_gets_one_place(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        await self._tasks(trial, *"a" * 20)
        await trial.time.advance(1)
        await self._tasks(trial, "b", "c", None, "b", "c", None)
        taken = []
        for _ in range(10):
            [one] = (await self._claim(trial, worker)).claimed
            taken.append(one.process.share)
            await trial.done(finished(one.process))
        assert taken == ["a", "b", "c", None, "a", "b", "c", None, "a", "a"]

    async def test_whose_turn_it_was_is_remembered_where_a_rate_lets_one_begin(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, rate=1, per=SECOND)
        await self._tasks(trial, *"a" * 20)
        await trial.time.advance(1)
        await self._tasks(trial, "b", "c")
        taken = []
        for _ in range(4):
            [one] = (await self._claim(trial, worker)).claimed
            taken.append(one.process.share)
            await trial.done(finished(one.process))
            await trial.time.advance(1)
        assert taken == ["a", "b", "c", "a"]

    async def test_tasks_of_one_share_that_are_due_together_begin_in_the_order_of_their_ids(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=3)
        asked = [task.id for task in await self._tasks(trial, *"a" * 9, due_at=await trial.time.now())]
        begun = []
        while taken := (await self._claim(trial, worker)).claimed:
            begun += [one.process.id for one in taken]
            for one in taken:
                await trial.done(finished(one.process))
        assert begun == asked

    async def test_priority_goes_before_turns(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=2)
        await self._tasks(trial, "a", "b", priority=5)
        await self._tasks(trial, "a", "a", "a", priority=1)
        taken = [(one.process.share, one.process.priority) for one in (await self._claim(trial, worker)).claimed]
        assert taken == [("a", 1), ("a", 1)]

    async def test_a_share_that_has_reached_its_own_limit_is_passed_by(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, share_concurrency=2)
        await self._tasks(trial, *["loud"] * 9, "quiet")
        taken = [one.process.share for one in (await self._claim(trial, worker)).claimed]
        assert sorted(map(str, taken)) == ["loud", "loud", "quiet"]
        assert (await self._claim(trial, worker)).claimed == ()

    async def test_of_more_shares_than_one_look_sees_each_gets_its_turn(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, share_concurrency=1)
        shares = [f"tenant {number:03}" for number in range(2 * SHARES_A_LOOK + 20)]
        await self._tasks(trial, *(share for share in shares for _ in range(2)))
        taken: set[str | None] = set()
        for _ in range(4):
            taken |= {one.process.share for one in (await self._claim(trial, worker)).claimed}
        assert taken == set(shares)

    async def test_a_share_that_has_room_is_found_among_however_many_that_have_none(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, share_concurrency=1)
        shares = [f"tenant {number:03}" for number in range(2 * SHARES_A_LOOK + 20)]
        await self._tasks(trial, *(share for share in shares for _ in range(3)))
        running: dict[str | None, Process] = {}
        for _ in range(4):
            running |= {one.process.share: one.process for one in (await self._claim(trial, worker)).claimed}
        for share in (shares[5], shares[70], shares[-1]):
            await trial.done(finished(running[share]))
            found = [one.process.share for _ in range(4) for one in (await self._claim(trial, worker)).claimed]
            assert found == [share]

    async def _shares_begun(self, trial: Trial, worker: bytes, claims: int) -> list[str | None]:
        """The shares of the tasks that so many claims of one took; they have ended now."""
        shares = []
        for _ in range(claims):
            one = only((await self._claim(trial, worker, 1)).claimed)
            shares.append(one.process.share)
            await trial.done(finished(one.process))
        return shares

    async def test_a_due_share_is_found_behind_many_that_are_not_due_though_tasks_without_a_share_are_always_there(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        later = await trial.time.now() + 3600 * SECOND
        for number in range(2 * SHARES_A_LOOK + 20):
            await self._tasks(trial, f"tenant {number:03}", due_at=later)
        await self._tasks(trial, "zzz", *[None] * 20)
        assert "zzz" in (await self._shares_begun(trial, worker, 10))[:4]

    async def test_more_shares_than_one_look_sees_take_turns_with_tasks_without_a_share(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        shares = [None, *(f"tenant {number:03}" for number in range(SHARES_A_LOOK + 10))]
        await self._tasks(trial, *(share for share in shares for _ in range(3)))
        assert await self._shares_begun(trial, worker, 2 * len(shares)) == 2 * [*shares[1:], None]

    async def test_a_due_share_is_found_behind_many_that_are_not_due_though_another_priority_has_tasks_at_all_times(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        later = await trial.time.now() + 3600 * SECOND
        for number in range(SHARES_A_LOOK + 10):
            await self._tasks(trial, f"tenant {number:03}", due_at=later, priority=1)
        await self._tasks(trial, "zzz", "zzz", priority=1)
        await self._tasks(trial, *["m", "t"] * 20)
        await self._tasks(trial, "a", "b", *["t"] * 6)
        begun = await self._shares_begun(trial, worker, 12)
        assert begun.count("zzz") == 2 and {"a", "b", "m", "t"} <= set(begun)

    async def test_of_a_blocked_queue_nothing_is_taken_and_all_else_is(self, trial: Trial) -> None:
        worker = await trial.worker()
        [task] = await self._tasks(trial, None)
        blocked = await self._limit(trial, blocked_at=await trial.time.now(), blocked_by="ana", blocked_why="no money")
        other = await trial.started()
        answer = await self._claim(trial, worker, hosted=(BANK, (other.kind, other.code)))
        assert only(answer.claimed).process.id == other.id
        assert (await self._claim(trial, worker)).next_due_at is None
        assert (await self._claim(trial, worker, only=task.id)).claimed == ()
        await self._limit(trial, version=blocked.version + 1, blocked_at=None, blocked_by="", blocked_why="")
        assert only((await self._claim(trial, worker)).claimed).process.id == task.id

    async def test_by_its_rate_a_queue_begins_so_much_and_then_evenly(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, rate=4, per=8 * SECOND)
        await self._tasks(trial, *[None] * 20)
        answer = await self._claim(trial, worker)
        assert len(answer.claimed) == 4
        answer = await self._claim(trial, worker)
        assert (answer.claimed, answer.next_due_at) == ((), answer.now + 2 * SECOND)
        await trial.time.advance(1.999)
        assert (await self._claim(trial, worker)).claimed == ()
        await trial.time.advance(0.001)
        assert len((await self._claim(trial, worker)).claimed) == 1
        await trial.time.advance(9)
        assert len((await self._claim(trial, worker)).claimed) == 4

    async def test_the_largest_rates_costs_and_periods_can_be_reckoned_with(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, rate=10**9, per=100 * 365 * 86_400 * SECOND)
        await self._tasks(trial, *[None] * 300, cost=10**6)
        assert len((await self._claim(trial, worker)).claimed) == 300
        await self._tasks(trial, *[None] * 900, cost=10**6)
        assert len((await self._claim(trial, worker)).claimed) == 700
        assert (await self._claim(trial, worker)).claimed == ()

    async def test_a_full_queue_names_no_time_at_which_to_look_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        await self._tasks(trial, None, None)
        await self._claim(trial, worker)
        answer = await self._claim(trial, worker)
        assert (answer.claimed, answer.next_due_at, answer.alive) == ((), None, True)

    async def test_a_task_due_later_is_named_as_the_time_to_look_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        now = await trial.time.now()
        await self._tasks(trial, None, due_at=now + 60 * SECOND)
        assert (await self._claim(trial, worker)).next_due_at == now + 60 * SECOND

    async def test_who_takes_over_a_lapsed_task_takes_its_place_in_a_full_queue(self, trial: Trial) -> None:
        late, next = await trial.worker("late"), await trial.worker("next")
        await self._limit(trial, concurrency=2)
        await self._tasks(trial, *[None] * 5)
        held = {one.process.id for one in (await self._claim(trial, late)).claimed}
        await trial.time.advance(LEASE / SECOND)
        taken = (await self._claim(trial, next)).claimed
        assert {one.process.id for one in taken} == held
        assert {one.was_owned_by for one in taken} == {late}
        assert await self._running(trial) == 2

    async def test_a_suspect_and_a_named_task_need_room_too(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        [suspect] = await self._tasks(trial, None, deaths=2)
        [named] = await self._tasks(trial, None)
        assert (await self._claim(trial, worker, 0)).suspects
        assert len((await self._claim(trial, worker, only=named.id)).claimed) == 1
        assert (await self._claim(trial, worker, alone=True)).claimed == ()
        assert (await self._claim(trial, worker, alone=True, only=suspect.id)).claimed == ()
        answer = await self._claim(trial, worker)
        assert (answer.suspects, answer.suspects_waiting) == (False, True)
        await trial.done(finished(await trial.row(named.id)))
        assert only((await self._claim(trial, worker, alone=True)).claimed).process.id == suspect.id

    async def test_a_claim_that_fills_a_queue_or_finds_it_full_tells_of_suspects_that_it_keeps(
        self, trial: Trial
    ) -> None:
        worker, quarantine = await trial.worker(), await trial.worker("quarantine")
        await self._limit(trial, concurrency=1)
        await self._tasks(trial, *["loud"] * 3)
        assert not (await self._claim(trial, worker, 0)).suspects_waiting
        now = await trial.time.now()
        [suspect] = await self._tasks(trial, "shy", deaths=2, due_at=now + SECOND)
        [task] = (await self._claim(trial, worker)).claimed
        assert not (await self._claim(trial, worker)).suspects_waiting
        await trial.done(finished(task.process))
        await trial.time.advance(1)
        answer = await self._claim(trial, worker)
        assert (len(answer.claimed), answer.suspects, answer.suspects_waiting) == (1, False, True)
        for alone in (False, True):
            assert (await self._claim(trial, quarantine, alone=alone)).suspects_waiting
        await trial.done(finished(only(answer.claimed).process))
        answer = await self._claim(trial, quarantine, alone=True)
        assert (only(answer.claimed).process.id, answer.suspects_waiting) == (suspect.id, False)

    async def test_of_queues_with_limits_a_claim_takes_and_charges_no_more_than_8_mib(self, trial: Trial) -> None:
        inside(trial)
        worker, other = await trial.worker(), await trial.worker("there")
        await self._limit(trial, rate=100, per=100 * SECOND)
        await trial.store.records(Queue, [Queue("mail", 1, concurrency=100)])
        for kind in (KIND, "@mail"):
            await self._tasks(trial, *"ab" * 5, kind=kind, input=bulk(1_900_000))
        for left in (16, 12, 8, 4, 0):
            answer = await self._claim(trial, worker, hosted=(BANK, ("@mail", "")))
            assert (len(answer.claimed), answer.next_due_at) == (4, answer.now if left else None)
            bank = [row for row in await trial.stored() if row.kind == KIND and row.owner is not None]
            [row] = [row for row in await trial.store.records(Queue) if row.name == "bank"]
            assert row.next_at == (answer.now + len(bank) * SECOND if bank else 0)
            shares = Counter(row.share for row in bank)
            assert abs(shares["a"] - shares["b"]) <= 1
        await trial.time.advance(LEASE // SECOND + 1)
        answer = await self._claim(trial, other, hosted=(BANK, ("@mail", "")))
        assert (len(answer.claimed), answer.next_due_at) == (4, answer.now), "of those whose lease has lapsed too"

    async def test_an_ended_worker_takes_nothing_of_a_queue_with_limits(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=1)
        await self._tasks(trial, None)
        await trial.store.retire(worker, None, False)
        answer = await self._claim(trial, worker)
        assert (answer.alive, answer.claimed) == (False, ())

    async def test_a_lower_limit_holds_for_what_is_claimed_next(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limit(trial, concurrency=4)
        await self._tasks(trial, *[None] * 9)
        held = (await self._claim(trial, worker)).claimed
        await self._limit(trial, concurrency=2)
        for one in held[:2]:
            await trial.done(finished(one.process))
        assert (await self._claim(trial, worker)).claimed == ()
        await trial.done(finished(held[2].process))
        assert len((await self._claim(trial, worker)).claimed) == 1
