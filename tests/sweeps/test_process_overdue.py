"""Stuck: a process never ends. Past its deadline it ends as failed, without a turn, whoever holds it."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.errors import BadRecord
from perdure.kernel.command import wish
from perdure.kernel.commit import Verdict
from perdure.kernel.event import EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.runtime.sweeps import process_overdue
from perdure.testing.conformance.trial import finished, going_on, resting
from tests.sweeps.watch import Watch

FAILURE = b'{"type":"X","message":"why"}'


async def due_in(watch: Watch, seconds: float) -> int:
    """A deadline so many seconds ahead."""
    return await watch.store.now() + round(seconds * SECOND)


async def test_an_owned_process_past_its_deadline_ends_as_failed(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker(), deadline=await due_in(watch, 5))
    neighbours = [await watch.trial.started(deadline=await due_in(watch, 60)), await watch.trial.started()]
    assert await process_overdue.sweep(context) == 0
    await watch.passed(6)
    assert await process_overdue.sweep(context) == 1
    ended = await watch.sound(row)
    assert (ended.status, ended.owner, ended.due_at, ended.token) == (Status.FAILED, None, None, row.token + 1)
    assert b"deadline" in (ended.error or b"")
    assert [event.type for event in await watch.store.history(row.id, 1)] == [EventType.EXPIRED]
    assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert await watch.untouched(neighbours)
    assert await process_overdue.sweep(context) == 0


@pytest.mark.parametrize("status", [Status.RUNNING, Status.HELD, Status.BROKEN])
async def test_a_process_that_rests_ends_at_its_deadline_too(watch: Watch, status: Status) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker(), deadline=await due_in(watch, 5))
    error = None if status is Status.RUNNING else FAILURE
    await watch.trial.done(resting(row, await due_in(watch, 3600), status, error=error))
    await watch.passed(6)
    assert await process_overdue.sweep(context) == 1
    assert (await watch.trial.row(row.id)).status is Status.FAILED


async def test_what_ended_before_its_deadline_stays_as_it_ended(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker(), deadline=await due_in(watch, 5))
    ended = await watch.trial.done(finished(row))
    await watch.passed(6)
    assert await process_overdue.sweep(context) == 0
    assert await watch.untouched([ended])


async def test_a_process_in_our_own_hands_is_let_go_at_once(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.started(deadline=await due_in(watch, 5))
    await watch.passed(6)
    await process_overdue.sweep(context)
    assert context.events.takings == [(row.id, row.token + 1)]


async def overdue(watch: Watch, number: int) -> list[Process]:
    """So many processes past their deadlines."""
    rows = [await watch.trial.started(deadline=await due_in(watch, 1)) for _ in range(number)]
    await watch.passed(2)
    return rows


async def test_two_supervisors_at_once_count_an_overdue_process_once(watch: Watch) -> None:
    rows = await overdue(watch, 4)
    assert sum(await watch.at_once(process_overdue.sweep)) == 4
    for row in rows:
        assert len(await watch.store.history(row.id, 1)) == 1


async def test_a_round_ends_a_bounded_batch_of_overdue_processes(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    await overdue(watch, 3)
    assert [await process_overdue.sweep(context) for _ in range(3)] == [2, 1, 0]


async def asked_in_a_full_inbox(watch: Watch) -> Process:
    """A process past its deadline: it was asked to cancel by then, after it had been sent twenty letters."""
    row = await watch.trial.started(deadline=await due_in(watch, 1))
    for _ in range(20):
        await watch.trial.send(row.id, payload=b'"' + b"x" * 1_000 + b'"')
    asked = wish(Sender("ann"), row.deadline or 0)
    await watch.trial.send(row.id, type=MessageType.CANCEL, payload=asked, sender=Sender("ann").encode())
    return row


async def test_full_inboxes_are_read_a_bounded_number_of_bytes_at_a_time(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARD_BYTES", 3_000)
    read = watch.store.store.messages
    sizes: list[int] = []

    async def measured(*asked: Any, **narrow: Any) -> list[Message]:
        found = await read(*asked, **narrow)
        sizes.append(sum(len(message.payload) for message in found))
        return found

    monkeypatch.setattr(watch.store.store, "messages", measured)
    context = await watch.context()
    rows = [await asked_in_a_full_inbox(watch) for _ in range(3)]
    await watch.passed(2)
    assert await process_overdue.sweep(context) == 3
    assert max(sizes) <= 4_100, "the limit, and the message with which it was reached"
    for row in rows:
        ended = await watch.sound(row)
        assert ended.status is Status.CANCELLED and b"ann" in (ended.error or b"")


async def test_an_inbox_that_cannot_be_read_keeps_no_other_process_from_its_end(watch: Watch) -> None:
    context = await watch.context()
    rows = [await asked_in_a_full_inbox(watch) for _ in range(3)]
    await watch.passed(2)

    async def refused(name: str, wants: Any) -> None:
        if name == "messages" and rows[1].id in dict(wants):
            raise BadRecord("string or blob too big")

    watch.store.before = refused
    assert await process_overdue.sweep(context) == 2
    ended = [(await watch.trial.row(row.id)).status is Status.CANCELLED for row in rows]
    assert ended == [True, False, True]
    assert [finding.subject for finding in watch.found] == [rows[1].id]


async def test_after_a_store_error_the_next_round_finds_the_overdue_process_again(watch: Watch) -> None:
    context = await watch.context()
    await overdue(watch, 1)
    assert await watch.after_an_outage(context, process_overdue.sweep, "search") == 1
