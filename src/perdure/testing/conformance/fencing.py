"""The fence: who may commit, what a late or repeated commit is answered, and that it changes nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Verdict
from perdure.kernel.event import EventType
from perdure.kernel.process import Process, Status
from perdure.testing.conformance.trial import LEASE, Trial, finished, forced, going_on, only, released, resting


class Fencing:
    """Commits under an old token or version (rules 1 and 5), and resends of applied ones."""

    async def _refused(self, trial: Trial, commit: Commit) -> None:
        before = await trial.whole(commit.after.id)
        assert (await trial.commit(commit)).verdict is Verdict.REFUSED
        assert await trial.whole(commit.after.id) == before

    async def test_an_answer_with_an_old_token_changes_nothing(self, trial: Trial) -> None:
        first, second = await trial.worker(), await trial.worker("there")
        row = await trial.owned(first)
        await trial.send(row.id)
        await trial.time.advance(16)
        only((await trial.claim(second)).claimed)
        for late in (
            going_on(row, steps=3, consumed=((1, 1),), seen=1),
            released(row, 0),
            finished(row, seen=1),
            forced(row),
        ):
            await self._refused(trial, late)

    async def test_rule_1_a_late_answer_beside_good_ones_writes_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        late, one, two = [await trial.owned(worker) for _ in range(3)]
        for _ in range(3):
            await trial.send(late.id)
        await trial.done(forced(late, seen=1, consumed=((1, 1),)))
        before = await trial.whole(late.id)
        for answer in (
            going_on(late, steps=2, seen=2, consumed=((2, 1),)),
            going_on(late, steps=2, offered=1),
            finished(late, seen=3, consumed=((3, 1),)),
        ):
            answers = await trial.store.commit([going_on(one), answer, going_on(two)])
            assert [each.verdict for each in answers] == [Verdict.APPLIED, Verdict.REFUSED, Verdict.APPLIED]
            assert await trial.whole(late.id) == before
            one, two = await trial.row(one.id), await trial.row(two.id)
        assert (one.events, two.events) == (3, 3)

    async def test_an_answer_with_an_old_version_changes_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(going_on(row, steps=2))
        late = going_on(row, steps=2)
        other = replace(late, events=tuple(replace(event, payload=b'"other"') for event in late.events))
        await self._refused(trial, other)

    async def test_an_answer_with_a_token_or_version_of_the_future_changes_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await self._refused(trial, going_on(replace(row, token=row.token + 1)))
        await self._refused(trial, going_on(replace(row, version=row.version + 1)))

    async def test_a_commit_for_a_process_that_is_not_there_is_refused(self, trial: Trial) -> None:
        nobody = trial.process(token=1, owner=trial.ids.new_id(), due_at=0)
        assert (await trial.commit(going_on(nobody))).verdict is Verdict.REFUSED
        assert await trial.stored() == []

    async def test_after_a_release_the_old_owner_may_not_commit_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(released(row, 0))
        await self._refused(trial, finished(row))

    async def test_law_finished_is_final_a_late_answer_does_not_reopen_or_change_it(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(finished(row))
        for late in (going_on(row, steps=2), finished(row, Status.FAILED), forced(row)):
            await self._refused(trial, late)

    async def test_rule_5_a_commit_sent_again_is_answered_as_the_first_time(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        for make in (going_on, finished, forced):
            row = await trial.owned(worker)
            await self._sent_again(trial, make(row))
        for due in (now, now + 60 * SECOND):
            await self._sent_again(trial, released(await trial.owned(worker), due))
        await self._sent_again(trial, resting(await trial.owned(worker), now, Status.BROKEN))
        await self._sent_again(trial, released(await trial.owned(worker), now, steps=0))

    async def _sent_again(self, trial: Trial, commit: Commit) -> None:
        first = await trial.commit(commit)
        before = await trial.whole(commit.after.id)
        assert first.verdict is Verdict.APPLIED
        assert await trial.commit(commit) == first
        await trial.time.advance(1)
        assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert await trial.whole(commit.after.id) == before

    async def test_rule_5_a_commit_sent_again_after_the_owner_went_on_is_answered_applied(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        first = going_on(row, steps=2)
        await trial.done(going_on(await trial.done(first)))
        before = await trial.whole(row.id)
        assert (await trial.commit(first)).verdict is Verdict.APPLIED
        assert await trial.whole(row.id) == before

    async def test_rule_5_a_commit_sent_again_after_a_takeover_is_answered_applied(self, trial: Trial) -> None:
        first, second = await trial.worker(), await trial.worker("there")
        row = await trial.owned(first)
        applied = going_on(row, steps=2)
        await trial.done(applied)
        await trial.time.advance(16)
        heir = only((await trial.claim(second)).claimed).process
        await self._applied_already(trial, applied)
        await trial.done(going_on(heir))
        await self._applied_already(trial, applied)
        await trial.done(finished(await trial.row(row.id)))
        await self._applied_already(trial, applied)

    async def _applied_already(self, trial: Trial, commit: Commit) -> None:
        before = await trial.whole(commit.after.id)
        assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert await trial.whole(commit.after.id) == before

    async def test_rule_5_a_commit_lost_before_a_takeover_is_refused_though_the_heir_wrote_the_same_number(
        self, trial: Trial
    ) -> None:
        first, second = await trial.worker(), await trial.worker("there")
        row = await trial.owned(first)
        lost = going_on(row)
        await trial.time.advance(16)
        await trial.done(going_on(only((await trial.claim(second)).claimed).process))
        await self._refused(trial, lost)

    async def test_rule_5_an_end_sent_again_after_a_new_run_was_opened_is_answered_applied(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        ended = finished(row, Status.FAILED)
        failed = await trial.done(ended)
        await trial.done(forced(replace(failed, run=2, events=0), EventType.RUN_OPENED, status=Status.RUNNING))
        await self._applied_already(trial, ended)

    async def test_rule_22_of_two_commands_on_one_free_row_the_second_is_refused(self, trial: Trial) -> None:
        row = await trial.started()
        retry = forced(row, EventType.RESUMED, payload=b'{"who":"ann"}')
        terminate = forced(row, EventType.TERMINATED, payload=b'{"who":"bob"}', status=Status.CANCELLED, due_at=None)
        same_verb = forced(row, EventType.RESUMED, payload=b'{"who":"bob"}')
        assert (await trial.commit(retry)).verdict is Verdict.APPLIED
        await self._refused(trial, terminate)
        await self._refused(trial, same_verb)

    async def test_rule_22_a_command_is_refused_when_the_row_was_claimed_and_went_on_meanwhile(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        row = await trial.started()
        command = forced(row, EventType.TERMINATED, status=Status.CANCELLED, due_at=None)
        await trial.done(going_on(only((await trial.claim(worker)).claimed).process))
        await self._refused(trial, command)
        after = await trial.row(row.id)
        assert (after.token, after.version) == (command.after.token, command.after.version)

    async def test_rule_22_a_forcing_command_fences_off_the_owner(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        free = await trial.done(forced(row))
        assert (free.token, free.version, free.owner) == (row.token + 1, row.version + 1, None)
        await self._refused(trial, going_on(row, steps=2))
        await self._refused(trial, finished(row))
        assert (await trial.beat(worker, row)).lost == (row.id,)

    async def test_rule_6_each_commit_of_a_batch_is_answered_by_itself(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        rows = [await trial.owned(worker, key=str(number)) for number in range(6)]
        await trial.send(rows[2].id)
        stale = going_on(await self._stale(trial, rows[1]), steps=2)
        batch = [
            going_on(rows[0]),
            stale,
            finished(rows[2]),
            going_on(rows[3], not_before=now + 1),
            finished(rows[4]),
            going_on(replace(trial.process(), token=1)),
            released(rows[5], now),
        ]
        answers = await trial.store.commit(batch)
        assert [answer.verdict for answer in answers] == [
            Verdict.APPLIED,
            Verdict.REFUSED,
            Verdict.READ_FIRST,
            Verdict.EARLY,
            Verdict.APPLIED,
            Verdict.REFUSED,
            Verdict.APPLIED,
        ]
        events = [len((await trial.whole(row.id)).events) for row in rows]
        assert events == [1, 1, 0, 0, 1, 1]
        assert await trial.row(rows[3].id) == rows[3]

    async def _stale(self, trial: Trial, row: Process) -> Process:
        await trial.done(forced(row))
        return row

    async def test_rule_6_a_busy_row_is_set_aside_neither_refused_nor_waited_for(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(3)]
        batch = [going_on(row) for row in rows]
        async with trial.ground.locked(rows[1].id):
            answers = await trial.store.commit(batch)
            assert [answer.verdict for answer in answers] == [Verdict.APPLIED, Verdict.BUSY, Verdict.APPLIED]
            assert await trial.row(rows[1].id) == rows[1]
        assert {answer.verdict for answer in await trial.store.commit(batch)} == {Verdict.APPLIED}
        assert {(row.version, row.events) for row in await trial.stored()} == {(1, 1)}

    async def test_rule_6_a_late_answer_for_a_busy_row_is_not_judged_before_the_lock(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(forced(row))
        late = going_on(row, steps=2)
        async with trial.ground.locked(row.id):
            assert (await trial.commit(late)).verdict is Verdict.BUSY
        await self._refused(trial, late)

    async def test_a_lapsed_lease_that_nobody_took_still_commits(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(60)
        after = await trial.done(going_on(row))
        assert (after.owner, after.due_at) == (worker, await trial.time.now() + LEASE)
