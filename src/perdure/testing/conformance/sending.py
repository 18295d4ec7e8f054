"""What every store does with messages: numbers, resends, de-duplication, and who is woken."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import BadRecord
from perdure.kernel.message import MessageType, SendVerdict
from perdure.kernel.process import Status
from perdure.testing.conformance.trial import Trial, finished, released, resting


class Sending:
    """Sends: the numbered inbox (rule 4), answered as the first time when sent again (rule 5)."""

    async def test_rule_4_each_message_gets_the_number_of_its_own_send(self, trial: Trial) -> None:
        row, other = await trial.started(), await trial.started()
        first = await trial.store.send([trial.signal(row.id), trial.signal(other.id), trial.signal(row.id)])
        second = await trial.store.send([trial.signal(row.id)])
        assert [answer.number for answer in first + second] == [1, 1, 2, 3]
        assert {answer.verdict for answer in first + second} == {SendVerdict.DELIVERED}
        assert [answer.process for answer in first] == [row.id, other.id, row.id]
        assert (await trial.row(row.id)).inbox == 3
        assert [message.number for message in await trial.store.messages([(row.id, 0)])] == [1, 2, 3]

    async def test_a_message_is_kept_as_given(self, trial: Trial) -> None:
        row = await trial.started()
        given = [
            trial.signal(row.id, payload=b'{"by": "ann"}', key="mail/7", sender=b'{"who":"ann"}'),
            trial.signal(row.id, name="", type=MessageType.CANCEL),
        ]
        await trial.store.send(given)
        now = await trial.time.now()
        kept = await trial.store.messages([(row.id, 0)])
        assert kept == [replace(message, number=number, at=now) for number, message in enumerate(given, 1)]

    async def test_a_send_sent_again_is_answered_as_the_first_time(self, trial: Trial) -> None:
        row = await trial.started()
        messages = [trial.signal(row.id), trial.signal(row.id, key="k"), trial.signal(trial.ids.new_id())]
        first = await trial.store.send(messages)
        before = await trial.whole(row.id)
        assert await trial.store.send(messages) == first
        assert await trial.whole(row.id) == before

    async def test_a_send_sent_again_after_the_process_finished_is_answered_as_the_first_time(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        message = trial.signal(row.id)
        await trial.store.send([message])
        await trial.done(finished(await trial.row(row.id), seen=1, consumed=((1, 1),)))
        before = await trial.whole(row.id)
        [again] = await trial.store.send([message])
        assert (again.verdict, again.number) == (SendVerdict.DELIVERED, 1)
        assert await trial.whole(row.id) == before

    async def test_the_senders_key_keeps_a_second_message_out(self, trial: Trial) -> None:
        row = await trial.started()
        first = await trial.send(row.id, key="mail/7", payload=b"1")
        before = await trial.whole(row.id)
        second = await trial.send(row.id, "other", key="mail/7", payload=b"2")
        assert (first.verdict, first.number) == (SendVerdict.DELIVERED, 1)
        assert (second.verdict, second.number) == (SendVerdict.DUPLICATE, 1)
        assert await trial.whole(row.id) == before

    async def test_the_senders_key_counts_for_one_process_only(self, trial: Trial) -> None:
        row, other = await trial.started(), await trial.started()
        answers = await trial.store.send([trial.signal(id, key="mail/7") for id in (row.id, other.id)])
        assert [answer.verdict for answer in answers] == [SendVerdict.DELIVERED] * 2

    async def test_one_key_twice_in_one_batch_is_delivered_once(self, trial: Trial) -> None:
        row = await trial.started()
        batch = [trial.signal(row.id, key="k"), trial.signal(row.id, key="k"), trial.signal(row.id)]
        answers = await trial.store.send(batch)
        assert [(answer.verdict, answer.number) for answer in answers] == [
            (SendVerdict.DELIVERED, 1),
            (SendVerdict.DUPLICATE, 1),
            (SendVerdict.DELIVERED, 2),
        ]
        assert (await trial.row(row.id)).inbox == 2

    async def test_one_message_twice_in_one_batch_is_delivered_once(self, trial: Trial) -> None:
        row = await trial.started()
        message = trial.signal(row.id)
        answers = await trial.store.send([message, message])
        assert [(answer.verdict, answer.number) for answer in answers] == [(SendVerdict.DELIVERED, 1)] * 2
        assert (await trial.row(row.id)).inbox == 1

    async def test_law_nothing_unheard_a_message_makes_a_free_sleeper_due_now(self, trial: Trial) -> None:
        now = await trial.time.now()
        row = await trial.started(due_at=now + 3600 * SECOND)
        await trial.time.advance(1)
        answer = await trial.send(row.id)
        assert answer.owner is None
        assert await trial.row(row.id) == replace(row, inbox=1, due_at=now + SECOND, changed_at=now + SECOND)

    async def test_a_message_clears_the_reminder_of_a_free_running_row(self, trial: Trial) -> None:
        worker = await trial.worker()
        idle = await trial.done(resting(await trial.owned(worker), await trial.time.now() + 3600 * SECOND))
        now = await trial.time.advance(5)
        await trial.send(idle.id)
        assert await trial.row(idle.id) == replace(idle, inbox=1, due_at=now, reminder=False, changed_at=now)
        assert len((await trial.claim(worker)).claimed) == 1

    async def test_a_message_leaves_an_earlier_due_time(self, trial: Trial) -> None:
        row = await trial.started()
        now = await trial.time.advance(5)
        await trial.send(row.id)
        assert await trial.row(row.id) == replace(row, inbox=1, changed_at=now)

    async def test_a_message_to_an_owned_row_leaves_the_lease_and_names_the_owner(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(1)
        answer = await trial.send(row.id)
        assert (answer.verdict, answer.number, answer.owner) == (SendVerdict.DELIVERED, 1, worker)
        assert await trial.row(row.id) == replace(row, inbox=1)

    @pytest.mark.parametrize("status", [Status.HELD, Status.BROKEN])
    async def test_a_message_to_a_held_or_broken_row_waits_there(self, trial: Trial, status: Status) -> None:
        worker = await trial.worker()
        row = await trial.done(resting(await trial.owned(worker), await trial.time.now() + SECOND, status))
        assert (await trial.send(row.id)).verdict is SendVerdict.DELIVERED
        assert await trial.row(row.id) == replace(row, inbox=1)

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    async def test_rule_4_a_message_to_a_finished_process_is_recorded_and_answered(
        self, trial: Trial, status: Status
    ) -> None:
        worker = await trial.worker()
        row = await trial.done(finished(await trial.owned(worker), status))
        await trial.time.advance(1)
        message = trial.signal(row.id)
        [answer] = await trial.store.send([message])
        assert (answer.verdict, answer.number) == (SendVerdict.FINISHED, 1)
        assert await trial.row(row.id) == replace(row, inbox=1)
        assert [kept.number for kept in await trial.store.messages([(row.id, 0)])] == [1]
        assert await trial.store.send([message]) == [answer]

    async def test_a_message_to_nobody_is_not_found_and_not_kept(self, trial: Trial) -> None:
        nobody, row = trial.ids.new_id(), await trial.started()
        answers = await trial.store.send([trial.signal(nobody), trial.signal(row.id)])
        assert [answer.verdict for answer in answers] == [SendVerdict.NOT_FOUND, SendVerdict.DELIVERED]
        assert await trial.store.messages([(nobody, 0)]) == []

    async def test_rule_5_a_send_moves_neither_token_nor_version(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.send(row.id)
        after = await trial.row(row.id)
        assert (after.token, after.version) == (row.token, row.version)
        assert (await trial.done(released(after, 0))).version == row.version + 1

    async def test_rule_6_a_busy_target_is_set_aside_and_its_neighbours_get_theirs(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        busy, free = await trial.started(), await trial.started()
        batch = [trial.signal(busy.id), trial.signal(free.id), trial.signal(trial.ids.new_id())]
        async with trial.ground.locked(busy.id):
            answers = await trial.store.send(batch)
        assert [answer.verdict for answer in answers] == [
            SendVerdict.BUSY,
            SendVerdict.DELIVERED,
            SendVerdict.NOT_FOUND,
        ]
        assert await trial.row(busy.id) == busy
        [again, *_] = await trial.store.send(batch)
        assert (again.verdict, again.number) == (SendVerdict.DELIVERED, 1)

    async def test_rule_2_a_batch_of_1000_messages_to_one_process_is_numbered_in_its_order(self, trial: Trial) -> None:
        row = await trial.started()
        answers = await trial.store.send([trial.signal(row.id) for _ in range(1000)])
        assert [answer.number for answer in answers] == list(range(1, 1001))
        assert (await trial.row(row.id)).inbox == 1000

    @pytest.mark.parametrize("fault", [{"id": b"short"}, {"name": "\0"}, {"key": "\ud800"}, {"type": 1 << 70}], ids=str)
    async def test_a_bad_record_among_messages_raises_and_stores_nothing_of_the_batch(
        self, trial: Trial, fault: dict[str, Any]
    ) -> None:
        row = await trial.started()
        good = trial.signal(row.id)
        with pytest.raises(BadRecord):
            await trial.store.send([good, trial.signal(row.id, **fault)])
        assert await trial.whole(row.id) == replace(await trial.whole(row.id), process=row, messages=())
        assert (await trial.store.send([good]))[0].number == 1

    async def test_a_batch_of_no_messages_is_answered_with_nothing(self, trial: Trial) -> None:
        assert await trial.store.send([]) == []
