"""What pruning removes, what it leaves, and how long keys outlive their processes (rule 24)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Start, StartVerdict, Verdict
from perdure.kernel.message import SendVerdict
from perdure.kernel.note import RETENTION, Note
from perdure.kernel.process import Process, Status
from perdure.kernel.retention import RetentionState
from perdure.store.base import Pruned, Search
from perdure.testing.conformance.lettering import bulk, inside
from perdure.testing.conformance.trial import Trial, finished, forced, going_on, resting

DAY = 24 * 3600 * SECOND


class Pruning:
    """Retention: bounded, oldest first, finished processes only."""

    async def _ended(self, trial: Trial, worker: bytes, status: Status = Status.COMPLETED, **fields: object) -> Process:
        row = await trial.owned(worker, **fields)
        row = await trial.done(going_on(row, steps=3))
        return await trial.done(finished(row, status))

    async def test_only_what_finished_longer_ago_is_removed(self, trial: Trial) -> None:
        worker = await trial.worker()
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await self._ended(trial, worker, status)
        old = await trial.owned(worker)
        await trial.time.advance(3600)
        kept = [
            await trial.done(finished(old)),
            await self._ended(trial, worker),
            await trial.started(),
            await trial.done(resting(await trial.owned(worker), 0, Status.HELD)),
            await trial.done(resting(await trial.owned(worker), 0, Status.BROKEN)),
        ]
        await trial.time.advance(1)
        assert await trial.store.prune(3602 * SECOND, DAY, 100) == Pruned(0, 0)
        assert await trial.store.prune(3601 * SECOND, DAY, 100) == Pruned(3, 0)
        assert await trial.stored() == kept[::-1]
        assert await trial.store.prune(3601 * SECOND, DAY, 100) == Pruned(0, 0)

    async def test_pruning_removes_events_and_messages_too(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await self._ended(trial, worker)
        await trial.send(row.id)
        neighbour = await trial.owned(worker)
        await trial.done(going_on(neighbour))
        await trial.send(neighbour.id)
        before = await trial.whole(neighbour.id)
        await trial.time.advance(10)
        assert (await trial.store.prune(SECOND, DAY, 100)).processes == 1
        assert await trial.store.search(Search(ids=(row.id,))) == []
        assert await trial.store.history(row.id, 1) == []
        assert await trial.store.messages([(row.id, 0)]) == []
        assert await trial.whole(neighbour.id) == before

    async def test_pruning_is_bounded_and_takes_the_longest_finished_first(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = []
        for _ in range(5):
            rows.append(await self._ended(trial, worker))
            await trial.time.advance(1)
        left = [5, 3, 1, 0, 0]
        for before, after in pairwise(left):
            assert (await trial.store.prune(0, DAY, 2)).processes == before - after
            assert await trial.stored() == rows[5 - after :][::-1]

    async def test_rule_6_pruning_passes_by_rows_that_somebody_else_has_locked(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        rows = [await self._ended(trial, worker) for _ in range(3)]
        async with trial.ground.locked(rows[1].id):
            assert await trial.store.prune(0, DAY, 100) == Pruned(2, 0)
        assert await trial.stored() == [rows[1]]
        assert await trial.store.prune(0, DAY, 100) == Pruned(1, 0)

    async def test_rule_24_a_key_outlives_its_process(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await self._ended(trial, worker, key="order/1")
        await trial.time.advance(10)
        await trial.store.prune(SECOND, DAY, 100)
        starts = [
            Start(trial.process(key="order/1")),
            Start(trial.process(key="order/1", input=b"[2]")),
            Start(trial.process(key="order/1", kind="refund")),
        ]
        answers = await trial.store.start(starts)
        assert [answer.verdict for answer in answers] == [
            StartVerdict.EXISTS,
            StartVerdict.CONFLICT,
            StartVerdict.CREATED,
        ]
        assert answers[0].id == answers[1].id == row.id
        assert [process.kind for process in await trial.stored()] == ["refund"]

    async def test_rule_5_a_start_sent_again_after_its_process_was_pruned_creates_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        start = Start(trial.process(key="order/1"))
        await trial.store.start([start])
        claimed = (await trial.claim(worker)).claimed[0].process
        await trial.done(finished(claimed))
        await trial.store.prune(0, DAY, 100)
        [answer] = await trial.store.start([start])
        assert (answer.verdict, answer.id) == (StartVerdict.CREATED, start.process.id)
        assert await trial.stored() == []

    async def test_rule_24_a_key_is_free_again_when_its_retention_is_over(self, trial: Trial) -> None:
        worker = await trial.worker()
        for number in range(3):
            await self._ended(trial, worker, key=f"order/{number}")
        await trial.store.prune(0, DAY, 100)
        await trial.time.advance(24 * 3600 - 1)
        assert (await trial.store.prune(0, DAY, 100)).keys == 0
        await trial.time.advance(1)
        assert (await trial.store.prune(0, DAY, 2)).keys == 2
        assert (await trial.store.prune(0, DAY, 2)).keys == 1
        answers = await trial.store.start([Start(trial.process(key=f"order/{number}")) for number in range(3)])
        assert [answer.verdict for answer in answers] == [StartVerdict.CREATED] * 3

    async def test_rule_24_a_key_whose_retention_is_over_is_free_before_it_is_pruned(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._ended(trial, worker, key="order/1")
        await trial.store.prune(0, DAY, 100)
        await trial.time.advance(24 * 3600)
        [answer] = await trial.store.start([Start(trial.process(key="order/1", input=b"[2]"))])
        assert answer.verdict is StartVerdict.CREATED
        assert await trial.store.prune(0, DAY, 100) == Pruned(0, 1)
        [again] = await trial.store.start([Start(trial.process(key="order/1"))])
        assert (again.verdict, again.id) == (StartVerdict.CONFLICT, answer.id)

    async def test_the_key_of_a_living_process_is_never_pruned(self, trial: Trial) -> None:
        row = await trial.started(key="order/1")
        await trial.time.advance(10 * 24 * 3600)
        assert await trial.store.prune(0, 0, 100) == Pruned(0, 0)
        [answer] = await trial.store.start([Start(trial.process(key="order/1"))])
        assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, row.id)

    async def test_a_pruned_process_is_unknown_to_late_answers_and_senders(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(finished(row))
        await trial.store.prune(0, DAY, 100)
        late: list[Commit] = [going_on(row), forced(row)]
        for commit in late:
            assert (await trial.commit(commit)).verdict is Verdict.REFUSED
        assert (await trial.send(row.id)).verdict is SendVerdict.NOT_FOUND
        assert (await trial.beat(worker, row)).lost == (row.id,)
        assert await trial.stored() == []

    async def test_a_message_to_a_finished_process_does_not_put_off_its_pruning(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await self._ended(trial, worker)
        await trial.time.advance(10)
        await trial.send(row.id)
        assert (await trial.store.prune(10 * SECOND, DAY, 100)).processes == 1

    async def test_what_had_ended_by_a_time_is_found_page_by_page_the_longest_ended_first(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = []
        for status in (Status.FAILED, Status.COMPLETED, Status.CANCELLED, Status.COMPLETED):
            rows.append(await self._ended(trial, worker, status))
            await trial.started()
            await trial.time.advance(1)
        task = await self._ended(trial, worker, kind="@bank")
        first = await trial.store.search(Search(ended_to=task.changed_at - 1, limit=3))
        assert first == rows[:3]
        behind = first[-1].changed_at, first[-1].id
        assert await trial.store.search(Search(ended_to=task.changed_at - 1, after=behind, limit=3)) == rows[3:]
        assert await trial.store.search(Search(ended_to=task.changed_at, after=behind)) == [*rows[3:], task]
        assert await trial.store.search(Search(ended_to=rows[0].changed_at - 1)) == []

    async def test_a_page_of_what_had_ended_holds_no_more_than_8_mib(self, trial: Trial) -> None:
        inside(trial)
        worker = await trial.worker()
        rows = [await self._ended(trial, worker, input=bulk(1_900_000)) for _ in range(6)]
        first = await trial.store.search(Search(ended_to=await trial.time.now()))
        assert ({row.id for row in first} < {row.id for row in rows}, len(first), first.left) == (True, 4, 2)
        last = first[-1].changed_at, first[-1].id
        rest = await trial.store.search(Search(ended_to=await trial.time.now(), after=last))
        assert ({row.id for row in (*first, *rest)}, rest.left) == ({row.id for row in rows}, 0)

    async def test_of_ends_at_one_time_the_next_page_begins_behind_the_id(self, trial: Trial) -> None:
        worker = await trial.worker()
        owned = [await trial.owned(worker) for _ in range(5)]
        assert len(await trial.store.commit([finished(row) for row in owned])) == 5
        now = await trial.time.now()
        found: list[Process] = []
        while page := await trial.store.search(
            Search(ended_to=now, after=(found[-1].changed_at, found[-1].id) if found else None, limit=2)
        ):
            found += page
        assert [(row.changed_at, row.id) for row in found] == sorted((row.changed_at, row.id) for row in found)
        assert {row.id for row in found} == {row.id for row in owned}

    async def test_of_processes_that_are_named_those_are_removed_that_have_ended_and_are_at_that_version(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        gone, changed, other = [await self._ended(trial, worker, key=f"order/{n}") for n in range(3)]
        running = await trial.owned(worker)
        named = [(gone.id, gone.version), (changed.id, changed.version - 1), (running.id, running.version)]
        assert await trial.store.prune(0, DAY, 0, only=[*named, (bytes(16), 1)]) == Pruned(1, 0)
        assert {row.id for row in await trial.stored()} == {changed.id, other.id, running.id}
        assert await trial.store.history(gone.id, 1) == []
        [answer] = await trial.store.start([Start(trial.process(key="order/0"))])
        assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, gone.id), "its key is kept (rule 24)"
        assert await trial.store.prune(0, DAY, 0, only=named) == Pruned(0, 0)

    async def test_while_workers_have_rules_no_process_is_removed_by_its_age_alone(self, trial: Trial) -> None:
        await self._ended(trial, await trial.worker())
        await trial.time.advance(10)
        note = Note(RETENTION).next(RetentionState(), await trial.time.now())
        assert await trial.store.records(Note, [note]) == [note]
        assert await trial.store.prune(SECOND, DAY, 100) == Pruned(0, 0)
        await trial.time.advance(24 * 3600)
        assert await trial.store.prune(SECOND, DAY, 100) == Pruned(1, 0)
