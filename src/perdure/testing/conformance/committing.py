"""What one commit writes: the row, its events, what it consumes, when it is due again (rules 2, 4 and 15)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import BadRecord
from perdure.kernel.commit import Commit, Start, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.testing.conformance.trial import (
    LEASE,
    Trial,
    finished,
    forced,
    going_on,
    only,
    plain,
    released,
    resting,
)


class Committing:
    """Commits whose fence fits."""

    async def test_a_commit_of_a_busy_owner_renews_the_lease(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(5)
        commit = going_on(row, due_at=3)
        answer = await trial.commit(commit)
        now = await trial.time.now()
        assert (answer.verdict, answer.inbox, answer.now) == (Verdict.APPLIED, 0, now)
        assert await trial.row(row.id) == replace(commit.after, due_at=now + LEASE, changed_at=now)

    async def test_rule_10_a_release_frees_the_row_and_keeps_the_token(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        now = await trial.time.now()
        commit = released(row, now + 3600 * SECOND)
        assert await trial.done(commit) == replace(commit.after, changed_at=now)
        assert (commit.after.owner, commit.after.token) == (None, row.token)

    async def test_a_commit_without_a_lease_frees_the_row_whoever_it_names(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        after = await trial.done(going_on(row, lease=0, due_at=await trial.time.now() + SECOND))
        assert (after.owner, after.due_at) == (None, await trial.time.now() + SECOND)

    async def test_every_column_of_the_row_is_stored_as_the_commit_has_it(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker, key="order/1", deadline=5)
        commit = released(
            row,
            await trial.time.now() + SECOND,
            awaiting="signal approval, timer",
            deaths=1,
            alone_deaths=3,
            deadline=1 << 50,
            priority=0,
            attributes=b'{"cents":12,"city":"Riga"}',
            state=b'{"at":"bank"}',
            progress=b"0.5",
            result=b"[]",
            error=b'{"type":"X"}',
            code="2",
        )
        assert plain(await trial.done(commit)) == replace(commit.after, changed_at=await trial.time.now())
        cleared = released(
            only((await trial.claim(worker, only=row.id, hosted=(("order", "2"),))).claimed).process,
            0,
            awaiting=None,
            deadline=None,
            attributes=None,
            state=None,
            progress=None,
            result=None,
            error=None,
        )
        assert await trial.done(cleared) == replace(cleared.after, changed_at=await trial.time.now())

    async def test_events_are_appended_gapless_and_kept_as_given(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        events = (
            Event(1, 1, EventType.STEP_COMPLETED, 5, "1", "charge", b'"paid"', b"digest 8"),
            Event(2, 1, EventType.MESSAGE_RECEIVED, 5, "", "approval", message=1),
            Event(3, 2, EventType.TIMER_FIRED, 6, ".1:2", "timer"),
            Event(4, 0, EventType.ATTEMPT_FAILED, -7, "2", "ship", b"\xff\x00", b""),
        )
        first = going_on(row, events=events, seen=1, consumed=((1, 2),))
        row = await trial.done(first)
        second = going_on(row, steps=2)
        await trial.done(second)
        whole = await trial.whole(row.id)
        assert whole.events == first.events + second.events
        assert {(event.token, event.version) for event in whole.events[:4]} == {(row.token, 1)}
        assert {(event.token, event.version) for event in whole.events[4:]} == {(row.token, 2)}
        assert whole.process.events == 6

    async def test_rule_5_the_store_writes_the_commits_own_token_and_version_beside_each_event(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        commit = going_on(row, steps=2)
        bare = tuple(replace(event, token=0, version=0) for event in commit.events)
        await trial.done(replace(commit, events=bare))
        assert (await trial.whole(row.id)).events == commit.events

    async def test_rule_4_a_release_with_an_unheard_message_is_due_now(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        answer = await trial.commit(released(row, await trial.time.now() + 3600 * SECOND))
        now = await trial.time.now()
        after = await trial.row(row.id)
        assert (answer.verdict, answer.inbox) == (Verdict.APPLIED, 1)
        assert (after.due_at, after.owner, after.inbox, after.seen) == (now, None, 1, 0)
        taken = only((await trial.claim(worker)).claimed)
        assert [message.number for message in taken.messages] == [1]

    async def test_rule_4_an_idle_release_with_an_unheard_message_is_no_reminder(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        after = await trial.done(resting(row, await trial.time.now() + 3600 * SECOND))
        assert (after.due_at, after.reminder) == (await trial.time.now(), False)

    async def test_rule_4_a_release_that_has_seen_everything_sleeps(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        later = await trial.time.now() + 3600 * SECOND
        after = await trial.done(released(row, later, seen=1, consumed=((1, 1),)))
        assert (after.due_at, after.inbox, after.seen) == (later, 1, 1)

    async def test_a_held_row_keeps_its_reminder_whatever_is_unheard(self, trial: Trial) -> None:
        worker = await trial.worker()
        for status in (Status.HELD, Status.BROKEN):
            row = await trial.owned(worker)
            await trial.send(row.id)
            later = await trial.time.now() + 60 * SECOND
            after = await trial.done(resting(row, later, status))
            assert (after.due_at, after.reminder, after.inbox) == (later, True, 1)

    async def test_the_inbox_belongs_to_the_senders(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        await trial.send(row.id)
        answer = await trial.commit(going_on(row, inbox=0))
        assert answer.inbox == 2
        assert (await trial.row(row.id)).inbox == 2

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    async def test_law_unfinished_is_due_an_end_leaves_no_due_time_and_no_owner(
        self, trial: Trial, status: Status
    ) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        commit = finished(row, status)
        after = await trial.done(commit)
        assert after == replace(commit.after, changed_at=await trial.time.now())
        assert (after.due_at, after.owner, after.final) == (None, None, True)

    async def test_rule_4_an_end_with_an_unheard_message_is_answered_read_first(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        before = await trial.whole(row.id)
        answer = await trial.commit(finished(row))
        assert (answer.verdict, answer.inbox) == (Verdict.READ_FIRST, 1)
        assert await trial.whole(row.id) == before
        await trial.done(finished(row, seen=1))

    async def test_rule_22_a_forced_end_waits_for_no_message(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        after = await trial.done(forced(row, EventType.TERMINATED, status=Status.CANCELLED, due_at=None))
        assert (after.status, after.inbox, after.seen) == (Status.CANCELLED, 1, 0)

    async def test_rule_15_a_timer_recorded_before_its_time_is_refused_as_early(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        due = await trial.time.now() + 5 * SECOND
        before = await trial.whole(row.id)
        for commit in (going_on(row, not_before=due), finished(row, not_before=due)):
            assert (await trial.commit(commit)).verdict is Verdict.EARLY
        assert await trial.whole(row.id) == before
        await trial.time.advance(4.999999)
        assert (await trial.commit(going_on(row, not_before=due))).verdict is Verdict.EARLY
        await trial.time.advance(0.000001)
        assert (await trial.commit(going_on(row, not_before=due))).verdict is Verdict.APPLIED

    async def test_law_result_once_a_message_is_consumed_by_the_event_that_records_it(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        for _ in range(4):
            await trial.send(row.id)
        await trial.done(going_on(row, steps=3, seen=4, consumed=((2, 1), (3, 3))))
        kept = await trial.store.messages([(row.id, 0)])
        assert [(message.consumed_run, message.consumed_by) for message in kept] == [
            (None, None),
            (1, 1),
            (1, 3),
            (None, None),
        ]

    async def test_law_result_once_a_consumed_message_is_not_consumed_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        row = await trial.done(going_on(row, seen=1, consumed=((1, 1),)))
        await trial.done(going_on(row, seen=1, consumed=((1, 2),)))
        [kept] = await trial.store.messages([(row.id, 0)])
        assert (kept.consumed_run, kept.consumed_by) == (1, 1)

    async def test_a_claim_brings_the_unheard_and_the_referenced_messages(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        for _ in range(4):
            await trial.send(row.id)
        received = Event(1, 1, EventType.MESSAGE_RECEIVED, 5, "", "approval", message=3)
        commit = released(row, 0, events=(received,), seen=3, consumed=((1, 0), (2, 1), (3, 1)))
        await trial.done(commit)
        taken = only((await trial.claim(worker)).claimed)
        assert [message.number for message in taken.messages] == [3, 4]
        assert taken.events == commit.events

    async def test_rule_21_a_new_run_begins_its_events_anew_and_is_offered_messages_again(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        for _ in range(3):
            await trial.send(row.id)
        first = finished(row, Status.FAILED, seen=3, consumed=((1, 1), (2, 1), (3, 1)))
        failed = await trial.done(first)
        kept_events = (
            Event(1, 0, EventType.RUN_OPENED, 5, payload=b'{"from_run":1}'),
            Event(2, 1, EventType.MESSAGE_RECEIVED, 5, "", "approval", message=1),
        )
        opened = forced(replace(failed, run=2), events=kept_events, status=Status.RUNNING, seen=1, offered=2)
        after = await trial.done(opened)
        assert (after.run, after.events, after.seen, after.inbox) == (2, 2, 1, 3)
        taken = only((await trial.claim(worker)).claimed)
        assert taken.events == opened.events
        assert [message.number for message in taken.messages] == [1, 2, 3]
        kept = await trial.store.messages([(row.id, 0)])
        assert [(message.consumed_run, message.consumed_by) for message in kept] == [(2, 2), (None, None), (None, None)]
        assert await trial.store.history(row.id, 1) == list(first.events)

    async def test_rule_2_a_batch_of_1000_commits_is_applied_whole(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = await self._hand(trial, worker, 1000)
        now = await trial.time.now()
        batch = [
            finished(row) if number % 3 == 0 else released(row, now) if number % 3 == 1 else going_on(row)
            for number, row in enumerate(rows)
        ]
        answers = await trial.store.commit(batch)
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        by_id = {row.id: row for row in await trial.stored()}
        for commit in batch:
            row = by_id[commit.after.id]
            assert row == replace(commit.after, due_at=row.due_at, changed_at=now)
        assert await trial.store.commit(batch) == answers

    async def test_a_history_of_2500_events_comes_whole_with_the_claim(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(released(row, 0, steps=2500))
        taken = only((await trial.claim(worker)).claimed)
        assert [event.number for event in taken.events] == list(range(1, 2501))

    async def test_law_history_is_gapless_an_event_number_is_never_written_twice(self, trial: Trial) -> None:
        worker = await trial.worker()
        row, other = await trial.owned(worker), await trial.owned(worker)
        row = await trial.done(going_on(row, steps=2))
        await self._bad(trial, going_on(replace(row, events=1), steps=1), other)

    async def test_law_unfinished_is_due_an_unfinished_row_without_a_due_time_cannot_be_written(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        row, other = await trial.owned(worker), await trial.owned(worker)
        await self._bad(trial, released(row, None), other)
        await self._bad(trial, resting(row, None, Status.HELD), other)

    async def test_a_held_or_broken_row_without_a_reminder_cannot_be_written(self, trial: Trial) -> None:
        worker = await trial.worker()
        row, other = await trial.owned(worker), await trial.owned(worker)
        for status in (Status.HELD, Status.BROKEN):
            await self._bad(trial, resting(row, 5, status, reminder=False), other)

    @pytest.mark.parametrize(
        "fault",
        [
            {"priority": 10},
            {"awaiting": "a\0b"},
            {"awaiting": "\udfff"},
            {"attributes": b"nothing"},
            {"deadline": 1 << 63},
            {"deaths": 1 << 70},
            {"events": (Event(1, 1, EventType.TIMER_FIRED, 1, "\0", "timer"),)},
            {"events": (Event(1, 1, EventType.TIMER_FIRED, 1 << 64, "1", "timer"),)},
            {"events": (Event(1, 1, EventType.TIMER_FIRED, 1, "1", "\ud83d"),)},
        ],
        ids=str,
    )
    async def test_a_bad_record_among_commits_raises_and_applies_nothing_of_the_batch(
        self, trial: Trial, fault: dict[str, Any]
    ) -> None:
        worker = await trial.worker()
        row, other = await trial.owned(worker), await trial.owned(worker)
        await self._bad(trial, going_on(row, **fault), other)

    async def test_a_batch_of_no_commits_is_answered_with_nothing(self, trial: Trial) -> None:
        assert await trial.store.commit([]) == []

    async def _bad(self, trial: Trial, bad: Commit, neighbour: Process) -> None:
        before = await trial.whole(bad.after.id), await trial.whole(neighbour.id)
        for batch in ([going_on(neighbour), bad], [bad, going_on(neighbour)], [bad]):
            with pytest.raises(BadRecord):
                await trial.store.commit(batch)
        assert before == (await trial.whole(bad.after.id), await trial.whole(neighbour.id))

    async def _hand(self, trial: Trial, worker: bytes, count: int) -> list[Process]:
        await trial.store.start([Start(trial.process()) for _ in range(count)])
        return [one.process for one in (await trial.claim(worker, limit=count)).claimed]
