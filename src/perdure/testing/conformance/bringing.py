"""Commits that bring a letter: the commit of the turn that has received it puts it into the inbox, or nobody does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Process
from perdure.testing.conformance.trial import Trial, finished, forced, going_on


class Bringing:
    """Commits with a letter that was never sent."""

    async def test_a_letter_that_a_commit_brings_is_in_the_inbox_and_consumed(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        commit = bringing(trial, row, name="deposit", payload=b"[500]", sender=b'{"who":"ann"}')
        answer = await trial.commit(commit)
        whole = await trial.whole(row.id)
        assert (answer.verdict, answer.inbox) == (Verdict.APPLIED, 1)
        assert (whole.process.inbox, whole.process.seen) == (1, 1)
        assert list(whole.messages) == [
            replace(commit.brings, at=await trial.time.now(), consumed_run=1, consumed_by=1),  # type: ignore[type-var]
        ]

    async def test_it_takes_no_room_in_the_inbox(self, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("perdure.limits.INBOX_RECORDS", 1)
        row = await trial.owned(await trial.worker())
        await trial.done(bringing(trial, row))
        assert (await trial.send(row.id)).verdict is SendVerdict.DELIVERED
        assert (await trial.send(row.id)).verdict is SendVerdict.FULL

    async def test_the_next_message_has_the_next_number(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        row = await trial.done(going_on(await trial.row(row.id), consumed=((1, 1),), seen=1))
        row = await trial.done(bringing(trial, row))
        assert (await trial.send(row.id)).number == 3

    async def test_rule_4_one_that_comes_after_another_message_is_read_first_and_nothing_is_written(
        self, trial: Trial
    ) -> None:
        row = await trial.owned(await trial.worker())
        commit = bringing(trial, row)
        await trial.send(row.id)
        before = await trial.whole(row.id)
        answer = await trial.commit(commit)
        assert (answer.verdict, answer.inbox) == (Verdict.READ_FIRST, 1)
        assert await trial.whole(row.id) == before

    async def test_rule_4_one_whose_key_the_inbox_has_is_read_first_and_nothing_is_written(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        row = await trial.done(bringing(trial, row, key="once"))
        before = await trial.whole(row.id)
        answer = await trial.commit(bringing(trial, row, key="once"))
        assert (answer.verdict, answer.inbox) == (Verdict.READ_FIRST, 1)
        assert await trial.whole(row.id) == before
        assert (await trial.send(row.id, key="once")).verdict is SendVerdict.DUPLICATE

    async def test_rule_05_a_commit_sent_again_brings_nothing_twice(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        commit = bringing(trial, row, key="once")
        await trial.done(commit)
        before = await trial.whole(row.id)
        assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert await trial.whole(row.id) == before

    async def test_a_refused_commit_brings_nothing(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        await trial.done(forced(row))
        before = await trial.whole(row.id)
        assert (await trial.commit(bringing(trial, row))).verdict is Verdict.REFUSED
        assert await trial.whole(row.id) == before

    async def test_in_a_batch_each_is_answered_by_itself(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(6)]
        rows[3] = await trial.done(bringing(trial, rows[3], key="once"))
        batch = [bringing(trial, rows[n]) for n in range(3)] + [bringing(trial, rows[3], key="once")]
        batch += [going_on(rows[4]), finished(rows[5])]
        batch[0] = replace(batch[0], sends=(trial.signal(rows[4].id),), starts=())
        await trial.send(rows[1].id)
        answers = await trial.store.commit(batch)
        told = [answer.verdict for answer in answers]
        assert told == [
            Verdict.APPLIED,
            Verdict.READ_FIRST,
            Verdict.APPLIED,
            Verdict.READ_FIRST,
            *2 * [Verdict.APPLIED],
        ]
        assert [(await trial.row(row.id)).inbox for row in rows] == [1, 1, 1, 1, 1, 0]
        assert [len((await trial.whole(row.id)).messages) for row in rows] == [1, 1, 1, 1, 1, 0]

    async def test_a_process_may_end_with_it(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent = await trial.owned(worker)
        row = await trial.owned(worker, parent=parent.id)
        commit = bringing(trial, row, owner=None, due_at=None, lease=0, status=finished(row).after.status)
        after = await trial.done(replace(commit, sends=(trial.signal(parent.id),)))
        assert (after.inbox, after.owner, (await trial.row(parent.id)).inbox) == (1, None, 1)

    async def test_a_row_that_rests_after_it_is_not_due(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        due_at = await trial.time.now() + SECOND
        after = await trial.done(bringing(trial, row, owner=None, due_at=due_at, lease=0))
        assert (after.owner, after.due_at) == (None, due_at)

    async def test_rule_6_one_whose_row_is_busy_is_set_aside(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(3)]
        batch = [bringing(trial, row) for row in rows]
        async with trial.ground.locked(rows[1].id):
            answers = await trial.store.commit(batch)
            assert [answer.verdict for answer in answers] == [Verdict.APPLIED, Verdict.BUSY, Verdict.APPLIED]
            assert (await trial.commit(batch[1])).verdict is Verdict.BUSY
            assert await trial.row(rows[1].id) == rows[1]
        assert {answer.verdict for answer in await trial.store.commit(batch)} == {Verdict.APPLIED}


def bringing(trial: Trial, row: Process, *, name: str = "approval", lease: int | None = None, **fields: Any) -> Commit:
    """The commit of a turn that has received a letter which was never sent; ``fields`` of the letter, or of the row."""
    number, event = row.seen + 1, row.events + 1
    letter = {key: fields.pop(key) for key in ("payload", "key", "sender") if key in fields}
    received = Event(event, row.version + 1, EventType.MESSAGE_RECEIVED, row.created_at, "", name, message=number)
    own = {} if lease is None else {"lease": lease}
    commit = going_on(row, events=(received,), consumed=((number, event),), seen=number, **own, **fields)
    return replace(commit, brings=trial.signal(row.id, name, number=number, **letter))
