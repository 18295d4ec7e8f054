"""What every store does with letters: how many may wait in an inbox, and how those not received are found."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from perdure import limits
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import LettersWanted, Message, MessageType, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.store.base import every_message
from perdure.testing.conformance.trial import Trial, forced, going_on, released

FULL, DELIVERED = SendVerdict.FULL, SendVerdict.DELIVERED


def heard(row: Process, *letters: tuple[int, str]) -> tuple[Event, ...]:
    """Events that record letters: the number and name of each."""
    return tuple(
        Event(row.events + place, place, EventType.MESSAGE_RECEIVED, 1, name=name, message=number)
        for place, (number, name) in enumerate(letters, 1)
    )


def numbers(messages: list[Message]) -> list[int]:
    """The numbers of messages."""
    return [message.number for message in messages]


def bulk(size: int) -> bytes:
    """A payload of so many bytes that does not shrink when it is compressed."""
    return random.Random(size).randbytes(size)


def inside(trial: Trial) -> None:
    """Skip the test where large payloads lie outside the database: then its answers are small."""
    if not trial.ground.inside:
        pytest.skip("large payloads lie outside this database")


class Lettering:
    """Letters: signals and calls, which wait in an inbox until the code receives them."""

    async def test_an_inbox_with_as_many_letters_as_may_wait_refuses_the_next(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "INBOX_RECORDS", 3)
        row, other = await trial.started(), await trial.started()
        batch = [trial.signal(row.id) for _ in range(5)] + [trial.signal(other.id)]
        assert [answer.verdict for answer in await trial.store.send(batch)] == [DELIVERED] * 3 + [FULL] * 2 + [
            DELIVERED
        ]
        assert (await trial.send(row.id)).verdict is FULL
        assert (await trial.send(row.id, type=MessageType.CALL)).verdict is FULL
        assert (await trial.row(row.id)).inbox == 3
        assert [answer.verdict for answer in await trial.store.send(batch[:3])] == [DELIVERED] * 3  # as the first time

    async def test_the_twin_of_a_letter_that_a_full_inbox_has_refused_is_refused_too(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "INBOX_RECORDS", 2)
        row = await trial.started()
        first, second, third = (trial.signal(row.id) for _ in range(3))
        keyed, twin = trial.signal(row.id, key="bill"), trial.signal(row.id, key="bill")
        order = trial.signal(row.id, type=MessageType.CANCEL, key="stop")
        batch = [first, first, second, third, third, keyed, twin, order, trial.signal(row.id, key="stop")]
        verdicts = [answer.verdict for answer in await trial.store.send(batch)]
        assert verdicts == [DELIVERED] * 3 + [FULL] * 4 + [DELIVERED, SendVerdict.DUPLICATE]
        assert (await trial.row(row.id)).inbox == 3

    async def test_an_inbox_with_as_many_bytes_as_may_wait_refuses_the_next(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "INBOX_BYTES", 3_000)

        async def answers(row: Process, *sizes: int) -> list[SendVerdict]:
            signals = [trial.signal(row.id, payload=bulk(size)) for size in sizes]
            return [answer.verdict for answer in await trial.store.send(signals)]

        row = await trial.started()
        assert await answers(row, 3_600) == [DELIVERED]  # to a process that waits for nothing else
        assert await answers(row, 3_600, 300, 1_800, 1_200) == [FULL] * 4
        row = await trial.started()
        assert await answers(row, 1_500, 1_800, 1_200, 600) == [DELIVERED, FULL, DELIVERED, FULL]

    async def test_what_the_engine_sends_by_itself_is_never_refused(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "INBOX_RECORDS", 1)
        worker = await trial.worker()
        full, sender = await trial.started(), await trial.owned(worker, kind="sender")
        assert (await trial.send(full.id)).verdict is DELIVERED
        for type in set(MessageType) - {MessageType.SIGNAL, MessageType.CALL}:
            assert (await trial.send(full.id, type=type)).verdict is DELIVERED
        for count in (1, 2):
            sends = tuple(trial.signal(full.id) for _ in range(count))
            sender = await trial.done(replace(going_on(sender), sends=sends))
        assert (await trial.row(full.id)).inbox == len(MessageType) + 2
        assert (await trial.send(full.id)).verdict is FULL

    async def test_an_inbox_has_room_again_when_letters_were_received(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "INBOX_RECORDS", 2)
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.store.send([trial.signal(row.id), trial.signal(row.id)])
        row = await trial.done(going_on(row, events=heard(row, (1, "approval")), seen=2, consumed=((1, 1), (2, 0))))
        assert (await trial.send(row.id)).verdict is DELIVERED
        assert (await trial.send(row.id)).verdict is FULL
        row = await trial.done(going_on(row, seen=3, consumed=((1, 0), (3, 0))))  # the first is put back
        assert (await trial.send(row.id)).verdict is FULL

    async def test_letters_that_were_not_received_are_found_by_name_in_their_order(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        names = ["a", "b", "a", "a", "b", "a"]
        await trial.store.send([trial.signal(row.id, name) for name in names])
        left = ((1, 0), (2, 0), (3, 0), (4, 1))
        row = await trial.done(going_on(row, events=heard(row, (4, "a")), seen=4, consumed=left))

        async def found(name: str, after: int = 0, upto: int = 6, most: int = 9) -> list[int]:
            want = LettersWanted(row.id, name, after, row.seen, upto, most)
            return numbers(await trial.store.messages(waiting=[want]))

        assert [await found("a"), await found("b"), await found("c")] == [[1, 3, 6], [2, 5], []]
        assert [await found("a", after=1), await found("a", upto=4), await found("a", most=2)] == [
            [3, 6],
            [1, 3],
            [1, 3],
        ]
        row = await trial.done(going_on(row, events=heard(row, (3, "a")), consumed=((3, 2),)))
        assert await found("a") == [1, 6]

    async def test_a_claim_reads_what_is_unheard_and_says_whether_letters_wait(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.store.send([trial.signal(row.id, "a"), trial.signal(row.id, "b")])
        row = await trial.done(going_on(row, events=heard(row, (2, "b")), seen=2, consumed=((1, 0), (2, 1))))
        await trial.done(released(row, await trial.time.now(), steps=0))
        await trial.send(row.id, "c")
        [claimed] = (await trial.claim(worker)).claimed
        assert (numbers(list(claimed.messages)), claimed.backlog) == ([2, 3], True)
        row = claimed.process
        events = heard(row, (1, "a"), (3, "c"))
        row = await trial.done(going_on(row, events=events, seen=3, consumed=((1, 2), (3, 3))))
        await trial.done(released(row, await trial.time.now(), steps=0))
        await trial.send(row.id, "d")
        [claimed] = (await trial.claim(worker)).claimed
        assert (numbers(list(claimed.messages)), claimed.backlog) == ([1, 2, 3, 4], False)

    async def test_unheard_messages_are_read_in_portions_of_bytes(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker = await trial.worker()
        row, other = sorted([await trial.started(), await trial.started()], key=lambda one: one.id)
        letters = [trial.signal(one.id, payload=bulk(900_000)) for one in (row, other) for _ in range(12)]
        letters += [trial.signal(other.id, type=MessageType.TERMINATE)]
        for letter in letters:  # one by one: kept outside, all of them may take longer than a store waits
            while (answer := (await trial.store.send([letter]))[0]).verdict is SendVerdict.BUSY:
                pass  # on a slow disk even one may
            assert answer.verdict is DELIVERED
        claimed = (await trial.claim(worker)).claimed
        read = {one.process.id: (numbers(list(one.messages)), one.cut) for one in claimed}
        # 8 MiB and the last, and an order to end
        assert read == {row.id: (list(range(1, 11)), True), other.id: ([13], True)}
        wants = [(row.id, 10), (other.id, 0)]
        assert numbers(await trial.store.messages(wants, most=1)) == [11, 13]
        assert numbers(await trial.store.messages(wants, most=2_000_000)) == [11, 12, 1, 13]
        assert len(await trial.store.messages(wants)) == 15

    async def test_all_messages_are_read_in_portions_each_once_and_none_is_left_behind_an_order_to_end(
        self, trial: Trial
    ) -> None:
        rows = sorted([await trial.started() for _ in range(3)], key=lambda one: one.id)
        for row in rows:
            for type in (MessageType.TERMINATE, MessageType.SIGNAL, MessageType.CANCEL, MessageType.TERMINATE):
                await trial.send(row.id, type=type, payload=bulk(300))
        wants = [(rows[2].id, 1), (rows[0].id, 0), (rows[1].id, 0)]
        expected = [(row.id, number) for row in rows for number in range(1 + (row is rows[2]), 5)]
        for most in (1, 301, 700, limits.BATCH_BYTES):
            found = [one async for some in every_message(trial.store, wants, most=most) for one in some]
            assert [(one.process, one.number) for one in found] == expected

    async def test_a_claim_says_of_which_processes_it_had_to_leave_messages_and_leaves_none_that_was_received(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker = await trial.worker()
        rows = sorted([await trial.owned(worker) for _ in range(4)], key=lambda one: one.id)
        for place, row in enumerate(rows):
            await trial.store.send([trial.signal(row.id, "a", payload=bulk(1_000)) for _ in range(3)])
            events, received = heard(row, (1, "a"), (2, "a"), (3, "a")), ((1, 1), (2, 2), (3, 3))
            rows[place] = await trial.done(going_on(row, events=events, seen=3, consumed=received))
        for row in rows:
            await trial.done(released(row, await trial.time.now(), steps=0))
        await trial.store.send([trial.signal(row.id, "b", payload=bulk(1_000)) for row in rows for _ in range(2)])

        async def read(most: int) -> list[tuple[list[int], bool]]:
            monkeypatch.setattr(limits, "HEARD_BYTES", most)
            claimed = sorted((await trial.claim(worker)).claimed, key=lambda one: one.process.id)
            for one in claimed:
                await trial.done(released(one.process, await trial.time.now(), steps=0))
            return [(numbers(list(one.messages)), one.cut) for one in claimed]

        whole, first, none = [1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2, 3]
        assert await read(2_500) == [(whole, False), (first, True), (none, True), (none, True)]
        assert await read(1) == [(first, True), (none, True), (none, True), (none, True)]
        assert await read(limits.BATCH_BYTES) == [(whole, False)] * 4

    async def test_a_new_run_is_offered_the_letters_that_the_run_before_it_received(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.store.send([trial.signal(row.id, name) for name in "abab"])
        events = heard(row, (2, "b"), (3, "a"), (1, "a"))
        row = await trial.done(going_on(row, events=events, seen=4, consumed=((1, 3), (2, 1), (3, 2), (4, 0))))
        kept = (
            Event(1, 0, EventType.RUN_OPENED, 1, payload=b"{}"),
            Event(2, 1, EventType.MESSAGE_RECEIVED, 1, name="b", message=2),
        )
        opened = await trial.done(forced(replace(row, run=2), events=kept, status=Status.RUNNING, seen=2, offered=3))
        messages = await trial.store.messages([(row.id, 0)])
        assert [one.consumed_by for one in messages] == [None, 2, None, None]
        [claimed] = (await trial.claim(worker)).claimed
        assert (numbers(list(claimed.messages)), claimed.backlog) == ([2, 3, 4], True)
        assert numbers(await trial.store.messages(waiting=[LettersWanted(row.id, "a", 0, opened.seen, 2, 9)])) == [1]
