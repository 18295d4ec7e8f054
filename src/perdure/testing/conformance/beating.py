"""Workers as the store knows them: enlisting, beats, renewals, retirement by compare-and-set (rules 11 and 12)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.message import SendVerdict
from perdure.kernel.worker import Beat, LeaseRenewal, WorkerRow
from perdure.testing.conformance.trial import HOSTED, LEASE, SILENCE, Trial, finished, forced, going_on, only, released


class Beating:
    """Enlist, beat, retire, workers."""

    async def test_an_enlisted_worker_is_listed_as_it_came(self, trial: Trial) -> None:
        now = await trial.time.now()
        given = WorkerRow(id=trial.ids.new_id(), name="shop-1", hosts=b'[["order","1"]]')
        enlisted = await trial.store.enlist(given, SILENCE)
        assert enlisted == replace(given, started_at=now, due_at=now + SILENCE, locked=enlisted.locked)
        assert await trial.store.workers() == [enlisted]

    async def test_rule_5_enlisting_again_changes_nothing(self, trial: Trial) -> None:
        given = WorkerRow(id=trial.ids.new_id(), name="shop-1")
        first = await trial.store.enlist(given, SILENCE)
        await trial.beat(given.id)
        again = await trial.store.enlist(given, SILENCE)
        assert (again.id, again.beats, again.started_at, again.locked) == (given.id, 1, first.started_at, first.locked)
        assert len(await trial.store.workers()) == 1

    async def test_a_beat_is_counted_and_moves_the_workers_due_time(self, trial: Trial) -> None:
        worker = await trial.worker()
        for beats in (1, 2, 3):
            await trial.time.advance(3)
            answer = await trial.beat(worker)
            now = await trial.time.now()
            assert (answer.alive, answer.now, answer.lost) == (True, now, ())
            [known] = await trial.store.workers()
            assert (known.beats, known.due_at) == (beats, now + SILENCE)

    async def test_the_evidence_of_a_hang_stays_in_the_workers_row_until_its_next_sign_of_life(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        [before] = await trial.store.workers()
        await trial.time.advance(1)
        answer = await trial.store.beat(Beat(worker, (), LEASE, SILENCE, b'{"process":""}'))
        assert answer.alive
        assert await trial.store.workers() == [replace(before, hang=b'{"process":""}')], "it is no sign of life"
        await trial.beat(worker)
        [after] = await trial.store.workers()
        assert (after.hang, after.beats) == (None, 1)

    async def test_the_figures_of_a_worker_stay_until_it_tells_others(self, trial: Trial) -> None:
        worker = await trial.worker()
        [known] = await trial.store.workers()
        assert known.figures is None
        for told, shown in ((b'{"held":1}', b'{"held":1}'), (None, b'{"held":1}'), (b'{"held":2}', b'{"held":2}')):
            assert (await trial.store.beat(Beat(worker, (), LEASE, SILENCE, figures=told))).alive
            [known] = await trial.store.workers()
            assert known.figures == shown
        await trial.store.retire(worker, None, died=False)
        assert not (await trial.store.beat(Beat(worker, (), LEASE, SILENCE, figures=b'{"held":3}'))).alive
        [known] = await trial.store.workers(ended=True)
        assert known.figures == b'{"held":2}', "what it held last can be read after its end, and nothing later"

    async def test_some_workers_are_told_by_their_ids_whether_they_have_ended_or_not(self, trial: Trial) -> None:
        alive, ended, other = [await trial.worker(name) for name in ("alive", "ended", "other")]
        for worker in (ended, other):
            await trial.store.retire(worker, None, died=True)
        everyone = {worker.id: worker for worker in await trial.store.workers(ended=True)}
        assert await trial.store.workers(ids={alive, ended}) == [everyone[alive], everyone[ended]]
        assert await trial.store.workers(ids=[other, b"0" * 16]) == [everyone[other]]
        assert await trial.store.workers(ids=()) == []

    async def test_the_evidence_of_a_hang_is_kept_though_others_have_ended_the_worker(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.store.retire(worker, None, died=False)
        await trial.store.beat(Beat(worker, (), LEASE, SILENCE, b"late"))
        [known] = [one for one in await trial.store.workers(ended=True) if one.id == worker]
        assert (known.hang, known.died) == (b"late", False)
        assert not (await trial.store.beat(Beat(trial.ids.new_id(), (), LEASE, SILENCE, b"of nobody"))).alive

    async def test_a_beat_prolongs_the_leases_it_names_and_no_others(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(3)]
        await trial.time.advance(10)
        answer = await trial.beat(worker, rows[0], rows[2], lease=20 * SECOND)
        assert (answer.alive, answer.lost) == (True, ())
        due_at = await trial.time.now() + 20 * SECOND
        assert await trial.row(rows[0].id) == replace(rows[0], due_at=due_at)
        assert await trial.row(rows[1].id) == rows[1]
        assert await trial.row(rows[2].id) == replace(rows[2], due_at=due_at)

    async def test_a_renewed_row_is_not_taken_over(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        row = await trial.owned(worker)
        for _ in range(5):
            await trial.time.advance(10)
            assert (await trial.beat(worker, row)).lost == ()
            assert (await trial.claim(other)).claimed == ()
        await trial.time.advance(15)
        assert only((await trial.claim(other)).claimed).was_owned_by == worker

    async def test_a_beat_tells_which_rows_are_lost_and_leaves_them_alone(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        kept, taken, freed, forced_off, gone = [await trial.owned(worker) for _ in range(5)]
        await trial.done(released(freed, await trial.time.now() + 3600 * SECOND))
        await trial.done(forced(forced_off, due_at=await trial.time.now() + 3600 * SECOND))
        await trial.done(finished(gone))
        await trial.time.advance(14)
        await trial.beat(worker, kept)
        await trial.time.advance(1)
        only((await trial.claim(other)).claimed)
        lost = [taken, freed, forced_off, gone]
        before = [await trial.row(row.id) for row in lost]
        nobody = trial.process(token=1)
        answer = await trial.beat(worker, kept, *lost, nobody)
        assert sorted(answer.lost) == sorted(row.id for row in [*lost, nobody])
        assert [await trial.row(row.id) for row in lost] == before

    async def test_a_row_of_the_same_owner_under_a_newer_token_is_lost_too(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(16)
        newer = only((await trial.claim(worker)).claimed).process
        assert (await trial.beat(worker, row)).lost == (row.id,)
        assert (await trial.beat(worker, newer)).lost == ()

    async def test_a_lapsed_lease_that_nobody_took_is_prolonged(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(60)
        assert (await trial.beat(worker, row)).lost == ()
        assert (await trial.row(row.id)).due_at == await trial.time.now() + LEASE

    async def test_progress_comes_with_the_beat_and_stays_until_it_changes(self, trial: Trial) -> None:
        worker = await trial.worker()
        row, other = await trial.owned(worker), await trial.owned(worker)
        for progress, kept in ((b'"1 of 3"', b'"1 of 3"'), (None, b'"1 of 3"'), (b'"2 of 3"', b'"2 of 3"')):
            renewals = (LeaseRenewal(row.id, row.token, progress), LeaseRenewal(other.id, other.token))
            await trial.store.beat(Beat(worker, renewals, LEASE, SILENCE))
            assert [(await trial.row(id)).progress for id in (row.id, other.id)] == [kept, None]
        after = await trial.row(row.id)
        assert (after.token, after.version, after.changed_at) == (row.token, row.version, row.changed_at)

    @pytest.mark.parametrize("batch", [1, 2])
    async def test_a_commit_leaves_the_progress_as_it_is_if_it_says_so(self, trial: Trial, batch: int) -> None:
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(batch)]
        await trial.store.beat(
            Beat(worker, tuple(LeaseRenewal(row.id, row.token, b'"1 of 3"') for row in rows), LEASE, SILENCE)
        )
        for kept, given, expected in (
            (True, b'"0 of 3"', b'"1 of 3"'),
            (True, None, b'"1 of 3"'),
            (False, b'"2 of 3"', b'"2 of 3"'),
            (False, None, None),
        ):
            await trial.store.commit([going_on(row, progress=given, progress_kept=kept) for row in rows])
            rows = [await trial.row(row.id) for row in rows]
            assert [row.progress for row in rows] == [expected] * batch

    async def test_rule_11_a_beat_of_an_ended_incarnation_renews_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.store.retire(worker, None, True)
        await trial.time.advance(1)
        answer = await trial.beat(worker, row)
        assert (answer.alive, answer.now) == (False, await trial.time.now())
        assert await trial.row(row.id) == row
        assert await trial.store.workers() == []

    async def test_rule_11_a_beat_of_an_unknown_worker_is_refused(self, trial: Trial) -> None:
        assert not (await trial.beat(trial.ids.new_id())).alive
        assert await trial.store.workers(ended=True) == []

    async def test_rule_12_a_worker_that_has_beaten_since_is_not_retired(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.beat(worker)
        [seen] = await trial.store.workers()
        await trial.beat(worker)
        assert not await trial.store.retire(worker, seen.beats, True)
        assert (await trial.beat(worker)).alive
        assert await trial.store.retire(worker, 3, True)
        assert not (await trial.beat(worker)).alive

    async def test_an_incarnation_is_retired_once(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.time.advance(2)
        answers = await asyncio.gather(*(trial.store.retire(worker, 0, True) for _ in range(5)))
        assert sorted(answers) == [False] * 4 + [True]
        assert not await trial.store.retire(worker, None, False)
        [ended] = await trial.store.workers(ended=True)
        assert (ended.id, ended.ended_at, ended.died) == (worker, await trial.time.now(), True)
        assert not await trial.store.retire(trial.ids.new_id(), None, True)

    async def test_ended_workers_are_listed_only_when_asked_for(self, trial: Trial) -> None:
        stays, leaves, dies = [await trial.worker(name) for name in ("stays", "leaves", "dies")]
        assert await trial.store.retire(leaves, None, False)
        assert await trial.store.retire(dies, 0, True)
        assert [worker.id for worker in await trial.store.workers()] == [stays]
        everyone = {worker.name: worker for worker in await trial.store.workers(ended=True)}
        assert {name: worker.died for name, worker in everyone.items()} == {
            "stays": False,
            "leaves": False,
            "dies": True,
        }
        assert everyone["stays"].ended_at is None

    async def test_an_ended_worker_is_forgotten_by_pruning_after_a_day_unless_it_owns_something(
        self, trial: Trial
    ) -> None:
        owns, ended, alive = [await trial.worker(name) for name in ("owns", "ended", "alive")]
        await trial.owned(owns)
        for worker in (owns, ended):
            await trial.store.retire(worker, None, True)
        await trial.time.advance(24 * 3600 - 1)
        await trial.store.prune(SECOND, SECOND, 100)
        assert len(await trial.store.workers(ended=True)) == 3
        await trial.time.advance(1)
        await trial.store.prune(SECOND, SECOND, 100)
        assert {worker.id for worker in await trial.store.workers(ended=True)} == {owns, alive}
        assert not (await trial.beat(ended)).alive

    async def test_rule_11_an_ended_incarnation_cannot_be_enlisted_again(self, trial: Trial) -> None:
        worker = WorkerRow(id=trial.ids.new_id(), name="again")
        await trial.store.enlist(worker, SILENCE)
        await trial.store.retire(worker.id, None, True)
        assert (await trial.store.enlist(worker, SILENCE)).ended_at is not None
        assert not (await trial.beat(worker.id)).alive

    async def test_retiring_a_worker_leaves_its_rows_to_the_sweep(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.store.retire(worker, None, True)
        assert await trial.row(row.id) == row
        assert (await trial.send(row.id)).verdict is SendVerdict.DELIVERED

    async def test_rule_12_the_lock_of_a_living_worker_is_seen_to_be_held(self, trial: Trial) -> None:
        enlisted = await trial.store.enlist(WorkerRow(id=trial.ids.new_id(), name="here"), SILENCE)
        for _ in range(3):
            [seen] = await trial.store.workers()
            assert (seen.locked, seen.lock_free) == (enlisted.locked, False)

    async def test_rule_12_the_lock_of_a_worker_that_is_gone_is_seen_to_be_free(self, trial: Trial) -> None:
        if not (trial.ground.shared and trial.ground.lasting):
            pytest.skip("nobody else can look at this database")
        other = trial.ground.store()
        await other.open()
        gone, also = [WorkerRow(id=trial.ids.new_id(), name=name) for name in ("gone", "also")]
        enlisted = [await other.enlist(worker, SILENCE) for worker in (gone, also)]
        await trial.worker()
        if not all(worker.locked for worker in enlisted):
            await other.close()
            pytest.skip("locks do not count here")
        assert [seen.lock_free for seen in await trial.store.workers()] == [False] * 3
        await other.close()
        seen = {worker.name: worker.lock_free for worker in await trial.store.workers()}
        assert seen == {"gone": True, "also": True, "here": False}
        assert [worker.ended_at for worker in await trial.store.workers()] == [None] * 3

    async def test_rule_6_a_beat_says_that_it_skipped_a_locked_row_and_does_not_call_it_lost(
        self, trial: Trial
    ) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(2)]
        await trial.time.advance(5)
        async with trial.ground.locked(rows[0].id), asyncio.timeout(5):
            answer = await trial.beat(worker, *rows)
        assert (answer.alive, answer.lost, answer.skipped) == (True, (), (rows[0].id,))
        assert await trial.row(rows[0].id) == rows[0]
        assert (await trial.row(rows[1].id)).due_at == await trial.time.now() + LEASE
        answer = await trial.beat(worker, *rows)
        assert (answer.lost, answer.skipped) == ((), ())
        assert (await trial.row(rows[0].id)).due_at == await trial.time.now() + LEASE

    async def test_a_beat_skips_no_row_that_nobody_locks(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(3)]
        gone = trial.process(token=1)
        answer = await trial.beat(worker, rows[0], gone, *rows[1:])
        assert (answer.lost, answer.skipped) == ((gone.id,), ())

    async def test_rule_6_a_row_that_was_taken_and_is_locked_is_lost_and_not_skipped(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(16)
        newer = only((await trial.claim(await trial.worker())).claimed).process
        async with trial.ground.locked(newer.id), asyncio.timeout(5):
            answer = await trial.beat(worker, row)
        assert (answer.lost, answer.skipped) == ((row.id,), ())

    async def test_a_beat_of_2000_renewals_is_one_request(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [trial.process(token=7) for _ in range(1000)]
        held = [await trial.owned(worker) for _ in range(5)]
        answer = await trial.beat(worker, *rows, *held)
        assert len(answer.lost) == 1000
        assert (await trial.claim(worker, hosted=HOSTED)).claimed == ()

    async def test_beats_and_commits_at_the_same_time_lose_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(30)]

        async def beat() -> None:
            for _ in range(10):
                assert (await trial.beat(worker, *rows)).lost == ()

        async def commit() -> None:
            todo = [going_on(row) for row in rows]
            while todo:
                answers = await trial.store.commit(todo)
                todo = [one for one, answer in zip(todo, answers, strict=True) if answer.verdict == "busy"]

        await asyncio.gather(beat(), commit())
        assert {(row.owner, row.version) for row in await trial.stored()} == {(worker, 1)}
