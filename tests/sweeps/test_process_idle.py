"""Stuck: a process waits for something that never comes, or for a person. It is looked at, without a turn."""

from __future__ import annotations

import logging

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.runtime.sweeps import process_idle
from perdure.testing.conformance.trial import resting
from tests.sweeps.watch import DAY, Watch, order

FAILURE = b'{"type":"X","message":"why"}'


async def idle(watch: Watch, status: Status = Status.RUNNING, *, seconds: float = 5.0) -> Process:
    """A process that rests, and is to be looked at in so many seconds."""
    row = await watch.trial.owned(await watch.trial.worker())
    due_at = await watch.store.now() + round(seconds * SECOND)
    error = None if status is Status.RUNNING else FAILURE
    return await watch.trial.done(resting(row, due_at, status, events=(), error=error))


async def test_an_idle_process_is_looked_at_again_about_a_day_later(watch: Watch) -> None:
    context = await watch.context()
    row = await idle(watch)
    neighbours = [await idle(watch, seconds=3600), await watch.trial.started()]
    assert await process_idle.sweep(context) == 0
    await watch.passed(6)
    assert await process_idle.sweep(context) == 1
    after, now = await watch.sound(row), await watch.store.now()
    assert (after.status, after.reminder) == (Status.RUNNING, True)
    assert after.due_at is not None
    assert 0.8 * DAY <= (after.due_at - now) / SECOND <= 1.2 * DAY
    assert after.changed_at == row.changed_at, "to be looked at is no change: since when it waits does not move"
    assert await watch.untouched(neighbours)
    assert await process_idle.sweep(context) == 0


async def test_rule_09_an_idle_process_is_looked_at_without_a_turn(watch: Watch) -> None:
    context = await watch.context(order)
    row = await idle(watch)
    await watch.passed(6)
    assert (await watch.trial.claim(context.incarnation.id)).claimed == ()
    assert await process_idle.sweep(context) == 1
    after = await watch.sound(row)
    assert (after.token, after.events, after.owner, after.opened_at) == (row.token, row.events, None, row.opened_at)


@pytest.mark.parametrize("status", [Status.HELD, Status.BROKEN])
async def test_people_are_reminded_of_a_process_that_waits_for_them(
    watch: Watch, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    context = await watch.context()
    row = await idle(watch, status)
    with caplog.at_level(logging.WARNING, logger="perdure"):
        assert await process_idle.sweep(context) == 0
        assert caplog.messages == []
        await watch.passed(6)
        assert await process_idle.sweep(context) == 1
    assert caplog.messages == [f"process {id_text(row.id)} (order) is {status} and waits for a person"]
    after = await watch.trial.row(row.id)
    assert (after.status, after.reminder) == (status, True)


async def test_every_change_moves_the_time_of_the_idle_check(watch: Watch) -> None:
    context = await watch.context()
    row = await idle(watch)
    await watch.passed(4)
    await watch.trial.send(row.id)
    assert not (await watch.trial.row(row.id)).reminder
    await watch.passed(2)
    assert await process_idle.sweep(context) == 0


async def test_two_supervisors_at_once_count_a_reminder_once(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    rows = [await idle(watch, Status.BROKEN) for _ in range(4)]
    await watch.passed(6)
    with caplog.at_level(logging.WARNING, logger="perdure"):
        assert sum(await watch.at_once(process_idle.sweep)) == 4
    assert len(caplog.messages) == 4
    for row in rows:
        assert (await watch.trial.row(row.id)).version == row.version + 1


async def test_a_round_looks_at_a_bounded_batch_of_idle_processes(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    for _ in range(3):
        await idle(watch)
    await watch.passed(6)
    assert [await process_idle.sweep(context) for _ in range(3)] == [2, 1, 0]


async def test_after_a_store_error_the_next_round_finds_the_idle_process_again(watch: Watch) -> None:
    context = await watch.context()
    await idle(watch)
    await watch.passed(6)
    assert await watch.after_an_outage(context, process_idle.sweep, "search") == 1
