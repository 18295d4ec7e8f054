"""What a commit sends out: children and messages, written with the commit or not at all (law one_transaction)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import StoreUnavailable
from perdure.kernel import child
from perdure.kernel.commit import Commit, Start, Verdict
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.testing.conformance.trial import Trial, finished, forced, going_on, only, released
from perdure.testing.faults import FaultyStore, Outage


class Outward:
    """Commits with children and messages."""

    async def test_children_are_there_and_due_when_their_parent_s_commit_is(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        some = [trial.process(parent=parent.id, input=b"[%d]" % n, priority=n) for n in range(3)]
        await trial.done(outward(going_on(parent), starts=some))
        rows = [await trial.row(one.id) for one in some]
        assert [(row.parent, row.input, row.priority) for row in rows] == [
            (parent.id, b"[0]", 0), (parent.id, b"[1]", 1), (parent.id, b"[2]", 2),
        ]  # fmt: skip
        taken = (await trial.claim(worker)).claimed
        assert {one.process.id for one in taken} == {one.id for one in some}

    async def test_a_refused_commit_starts_nothing_and_sends_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        other = await trial.started()
        await trial.done(forced(parent, due_at=0))
        before = await trial.stored()
        late = outward(going_on(parent), starts=[trial.process(parent=parent.id)], sends=[trial.signal(other.id)])
        assert (await trial.commit(late)).verdict is Verdict.REFUSED
        assert await trial.stored() == before
        assert not await trial.store.messages([(other.id, 0)])

    async def test_rule_05_a_commit_sent_again_starts_and_sends_nothing_twice(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        target = await trial.started()
        commit = outward(going_on(parent), starts=[trial.process(parent=parent.id)], sends=[trial.signal(target.id)])
        await trial.done(commit)
        rows = await trial.stored()
        again = await trial.commit(commit)
        assert again.verdict is Verdict.APPLIED
        assert await trial.stored() == rows
        assert len(await trial.store.messages([(target.id, 0)])) == 1

    async def test_rule_05_a_commit_sent_again_does_not_bring_back_a_child_that_was_pruned(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        commit = outward(going_on(parent), starts=[trial.process(parent=parent.id)])
        await trial.done(commit)
        taken = only((await trial.claim(worker)).claimed)
        await trial.done(finished(taken.process))
        assert (await trial.store.prune(0, 0, 10)).processes == 1
        assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert [row.id for row in await trial.stored()] == [parent.id]

    async def test_rule_02_a_parent_and_its_children_may_end_in_one_batch(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        children = [await trial.owned(worker, parent=parent.id) for _ in range(3)]
        ends = [finished(one, result=b'"%d"' % n) for n, one in enumerate(children)]
        ends = [replace(end, sends=child.answer(end.after)) for end in ends]
        due = await trial.time.now() + 3600 * SECOND
        answers = await trial.store.commit([ends[0], released(parent, due), *ends[1:]])
        assert [answer.verdict for answer in answers] == [Verdict.APPLIED] * 4
        row = await trial.row(parent.id)
        assert (row.inbox, row.seen, row.due_at) == (3, 0, await trial.time.now())
        claimed = only((await trial.claim(worker)).claimed)
        told = {(one.id, one.type, one.payload) for one in claimed.messages}
        assert told == {(one.id, MessageType.RESULT, b'"%d"' % n) for n, one in enumerate(children)}

    async def test_a_child_s_answer_wakes_a_parent_that_nobody_owns(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        row = await trial.owned(worker, parent=parent.id)
        await trial.done(replace(released(parent, None), after=replace(resting_row(parent), reminder=True)))
        end = finished(row, Status.FAILED, result=None, error=b'{"type":"X","message":"y"}')
        await trial.done(replace(end, sends=child.answer(end.after)))
        told = only((await trial.claim(worker)).claimed)
        assert told.process.id == parent.id
        assert [(one.type, one.payload) for one in told.messages] == [(MessageType.FAILURE, end.after.error)]

    async def test_the_second_answer_of_a_child_is_left_out(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        row = await trial.owned(worker, parent=parent.id)
        failed = finished(row, Status.FAILED, result=None, error=b'{"type":"X","message":"y"}')
        row = await trial.done(replace(failed, sends=child.answer(failed.after)))
        retried = replace(row, status=Status.RUNNING, run=2, events=0, error=None)
        row = await trial.done(forced(retried, due_at=await trial.time.now()))
        [taken] = [one for one in (await trial.claim(worker)).claimed if one.process.id == row.id]
        well = finished(taken.process)
        await trial.done(replace(well, sends=child.answer(well.after)))
        assert [one.type for one in await trial.store.messages([(parent.id, 0)])] == [MessageType.FAILURE]

    async def test_a_message_to_nobody_does_not_hold_a_commit_up(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        gone = trial.ids.new_id()
        after = await trial.done(outward(going_on(row), sends=[trial.signal(gone)]))
        assert after.version == row.version + 1
        assert not await trial.store.messages([(gone, 0)])

    async def test_an_answer_to_a_finished_parent_is_kept_and_changes_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        row = await trial.owned(worker, parent=parent.id)
        before = await trial.done(finished(parent))
        end = finished(row)
        await trial.done(replace(end, sends=child.answer(end.after)))
        assert await trial.row(parent.id) == replace(before, inbox=1)

    async def test_rule_06_a_commit_whose_target_is_locked_is_busy_and_its_neighbours_are_written(
        self, trial: Trial
    ) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        target = await trial.started()
        one, other = await trial.owned(worker), await trial.owned(worker)
        blocked = outward(going_on(one), starts=[trial.process(parent=one.id)], sends=[trial.signal(target.id)])
        async with trial.ground.locked(target.id):
            answers = await trial.store.commit([blocked, going_on(other)])
        assert [answer.verdict for answer in answers] == [Verdict.BUSY, Verdict.APPLIED]
        assert len(await trial.stored()) == 3
        assert (await trial.commit(blocked)).verdict is Verdict.APPLIED
        assert len(await trial.stored()) == 4

    async def test_rule_05_an_unknown_outcome_of_an_outward_commit_is_resolved_by_sending_it_again(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        target = await trial.started()
        for lost_answers in (False, True):
            faulty = FaultyStore(trial.store)
            outage = Outage("commit", after=lost_answers).upon(faulty)
            row = await trial.row(parent.id)
            commit = outward(going_on(row), starts=[trial.process(parent=row.id)], sends=[trial.signal(target.id)])
            outage.away = True
            with pytest.raises(StoreUnavailable):
                await faulty.commit([commit])
            outage.away = False
            [answer] = await faulty.commit([commit])
            assert answer.verdict is Verdict.APPLIED
        assert len(await trial.stored()) == 4
        assert len(await trial.store.messages([(target.id, 0)])) == 2


def outward(commit: Commit, starts: list[Process] | None = None, sends: list[Message] | None = None) -> Commit:
    """The commit, with children and messages."""
    return replace(commit, starts=tuple(Start(one) for one in starts or ()), sends=tuple(sends or ()))


def resting_row(row: Process) -> Process:
    """The row after the release of a process that waits for a message; it is looked at again in an hour."""
    return replace(
        row, version=row.version + 1, owner=None, due_at=row.created_at + 3600 * SECOND, events=row.events + 1
    )
