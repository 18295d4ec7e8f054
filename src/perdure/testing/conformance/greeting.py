"""Greeting: a start that brings its first messages, stored in one transaction with them or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import BadRecord
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Process, Status
from perdure.testing.conformance.trial import CODE, KIND, LEASE, Trial, only


class Greeting:
    """``start`` with messages."""

    def _start(self, trial: Trial, process: Process, *names: str) -> Start:
        return Start(process, messages=tuple(trial.signal(process.id, name) for name in names))

    async def _messages(self, trial: Trial, process: bytes) -> list[tuple[int, str]]:
        return [(message.number, message.name) for message in await trial.store.messages([(process, 0)])]

    async def test_a_start_is_stored_with_its_first_messages_in_their_order(self, trial: Trial) -> None:
        process, other = trial.process(key="order/1"), trial.process()
        start = self._start(trial, process, "paid", "sent")
        answers = await trial.store.start([Start(other), start])
        assert [(answer.verdict, answer.inbox) for answer in answers] == [
            (StartVerdict.CREATED, 0),
            (StartVerdict.CREATED, 2),
        ]
        row = await trial.row(process.id)
        assert (row.inbox, row.seen, row.due_at) == (2, 0, await trial.time.now())
        told = await trial.store.messages([(process.id, 0)])
        assert told == [
            replace(message, number=number, at=await trial.time.now())
            for number, message in enumerate(start.messages, 1)
        ]
        claimed = only((await trial.claim(await trial.worker(), only=process.id)).claimed)
        assert claimed.messages == tuple(told)

    async def test_rule_4_a_start_that_would_sleep_is_due_if_it_brings_a_message(self, trial: Trial) -> None:
        later = await trial.time.now() + 3600 * SECOND
        for fields in ({"due_at": later}, {"due_at": later, "reminder": True, "opened_at": 1, "created_at": 1}):
            process = trial.process(**fields)
            await trial.store.start([self._start(trial, process, "paid")])
            row = await trial.row(process.id)
            assert (row.due_at, row.reminder) == (await trial.time.now(), False)

    async def test_a_start_in_hand_stays_so_and_its_starter_hears_that_there_are_messages(self, trial: Trial) -> None:
        worker = await trial.worker()
        process = trial.process(owner=worker, token=1, version=1, events=1, opened_at=1, created_at=1)
        event = Event(1, 0, EventType.PUBLISHED, 1, "1", "line", b"1")
        [answer] = await trial.store.start([replace(self._start(trial, process, "paid"), lease=LEASE, events=(event,))])
        assert (answer.verdict, answer.inbox) == (StartVerdict.CREATED, 1)
        row = await trial.row(process.id)
        assert (row.owner, row.inbox, row.due_at) == (worker, 1, await trial.time.now() + LEASE)

    async def test_a_start_with_events_that_have_received_its_messages_consumes_them(self, trial: Trial) -> None:
        forks = [trial.process(run=run, events=1, seen=1, opened_at=1, created_at=1) for run in (1, 2)]
        taken = Event(1, 1, EventType.MESSAGE_RECEIVED, 1, "1", "paid", message=1)
        starts = [replace(self._start(trial, one, "paid", "sent"), events=(taken,)) for one in forks]
        other = trial.process()
        for _ in range(2):  # sent again, nothing of it changes
            await trial.store.start([self._start(trial, other, "paid"), *starts])
        for fork in forks:
            told = await trial.store.messages([(fork.id, 0)])
            consumed = [(one.number, one.consumed_run, one.consumed_by) for one in told]
            assert consumed == [(1, fork.run, 1), (2, None, None)]
            row = await trial.row(fork.id)
            assert (row.inbox, row.seen, row.due_at) == (2, 1, await trial.time.now())
        claim = await trial.claim(await trial.worker(), limit=9)
        assert {one.process.id: len(one.messages) for one in claim.claimed} == {
            forks[0].id: 2, forks[1].id: 2, other.id: 1,
        }  # fmt: skip

    async def test_rule_5_a_start_that_is_sent_again_brings_its_messages_once(self, trial: Trial) -> None:
        for key in (None, "order/1"):
            process = trial.process(key=key)
            start = self._start(trial, process, "paid")
            first = await trial.store.start([start])
            again = await trial.store.start([Start(trial.process()), start])
            assert again[1] == replace(first[0], again=True)
            assert await self._messages(trial, process.id) == [(1, "paid")]

    async def test_rule_24_a_start_whose_key_is_taken_brings_nothing(self, trial: Trial) -> None:
        holder = await trial.started(key="order/1")
        for input, verdict in ((b"[1]", StartVerdict.EXISTS), (b"[2]", StartVerdict.CONFLICT)):
            late = trial.process(key="order/1", input=input)
            fresh = trial.process()
            answers = await trial.store.start([self._start(trial, late, "paid"), self._start(trial, fresh, "sent")])
            assert [(answer.verdict, answer.id, answer.inbox) for answer in answers] == [
                (verdict, holder.id, 0),
                (StartVerdict.CREATED, fresh.id, 1),
            ]
            assert await self._messages(trial, holder.id) == await self._messages(trial, late.id) == []
            assert await self._messages(trial, fresh.id) == [(1, "sent")]

    async def test_of_two_starts_with_one_key_in_a_batch_the_first_one_brings_its_message(self, trial: Trial) -> None:
        first, second = trial.process(key="order/1"), trial.process(key="order/1")
        starts = [self._start(trial, first, "first"), self._start(trial, second, "second")]
        answers = await trial.store.start(starts)
        assert [answer.verdict for answer in answers] == [StartVerdict.CREATED, StartVerdict.EXISTS]
        assert await self._messages(trial, first.id) == [(1, "first")]

    async def test_rule_11_a_start_by_an_ended_incarnation_brings_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.store.retire(worker, None, died=False)
        process = trial.process(owner=worker, token=1)
        [answer] = await trial.store.start([replace(self._start(trial, process, "paid"), lease=LEASE)])
        assert answer.verdict is StartVerdict.REFUSED
        assert await trial.store.messages([(process.id, 0)]) == []

    async def test_a_message_under_the_same_key_is_known_again_afterwards(self, trial: Trial) -> None:
        process = trial.process()
        start = Start(process, messages=(trial.signal(process.id, "paid", key="once"),))
        await trial.store.start([start])
        assert (await trial.send(process.id, "paid", key="once")).verdict is SendVerdict.DUPLICATE
        [again] = await trial.store.send(start.messages)
        assert (again.verdict, again.number) == (SendVerdict.DELIVERED, 1)

    async def test_a_process_that_its_starter_has_ended_keeps_the_message_unheard(self, trial: Trial) -> None:
        worker = await trial.worker()
        process = trial.process(status=Status.COMPLETED, version=1, token=1, result=b"1", opened_at=1, created_at=1)
        await trial.store.start([self._start(trial, process, "paid")])
        row = await trial.row(process.id)
        assert (row.status, row.inbox, row.due_at) == (Status.COMPLETED, 1, None)
        assert (await trial.claim(worker, hosted=((KIND, CODE),))).claimed == ()

    @pytest.mark.parametrize("fault", [{"name": "\ud800"}, {"key": "a\0b"}], ids=ascii)
    async def test_a_bad_message_among_starts_raises_and_stores_nothing_of_the_batch(
        self, trial: Trial, fault: dict[str, str]
    ) -> None:
        good, bad = trial.process(), trial.process()
        message = trial.signal(bad.id, **fault)
        with pytest.raises(BadRecord):
            await trial.store.start([self._start(trial, good, "paid"), Start(bad, messages=(message,))])
        assert await trial.stored() == []
