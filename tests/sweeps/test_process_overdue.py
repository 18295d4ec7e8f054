"""Stuck: a process never ends. Past its deadline it ends as failed, without a turn, whoever holds it."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.commit import Verdict
from perdure.kernel.event import EventType
from perdure.kernel.process import Process, Status
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
    taken: list[tuple[bytes, int | None]] = []
    context.taken = lambda *one: taken.append(one)
    row = await watch.trial.started(deadline=await due_in(watch, 5))
    await watch.passed(6)
    await process_overdue.sweep(context)
    assert taken == [(row.id, row.token + 1)]


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


async def test_after_a_store_error_the_next_round_finds_the_overdue_process_again(watch: Watch) -> None:
    context = await watch.context()
    await overdue(watch, 1)
    assert await watch.after_an_outage(context, process_overdue.sweep, "search") == 1
