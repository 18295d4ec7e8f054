"""Budgets of rescue: workers revive so many processes in a while, all together; the others wait and are shown."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from perdure import limits
from perdure.client.recovery import Recovery
from perdure.clock import SECOND
from perdure.errors import InvalidInput
from perdure.kernel.note import Note
from perdure.kernel.process import Process
from perdure.runtime.sweeps import lease_lapsed, owner_gone, process_overdue, worker_dead
from perdure.store.base import Overdue
from tests.sweeps.test_among_many import refuse
from tests.sweeps.test_worker_dead import victim
from tests.sweeps.watch import Watch, order


async def orphans(watch: Watch, many: int) -> list[Process]:
    """So many processes of a worker that has ended."""
    ended = await watch.trial.worker("ended")
    rows = [await watch.trial.owned(ended) for _ in range(many)]
    await watch.store.retire(ended, None, False)
    return rows


async def test_workers_together_revive_as_many_as_the_budget_allows_and_the_rest_in_time(watch: Watch) -> None:
    one, two = await watch.context(), await watch.context()
    await orphans(watch, 25)
    recovery = Recovery(watch.store)
    await recovery.limit(10, timedelta(minutes=1), who="Ann", why="the bank is slow")
    assert [await owner_gone.sweep(one), await owner_gone.sweep(two), await owner_gone.sweep(one)] == [10, 0, 0]
    state = await recovery.state()
    assert (state.rate, state.per, state.left, state.who, state.paused) == (10, 60.0, 0, "Ann", False)
    assert await watch.overdue(Overdue.ORPHANED) == 15
    await watch.passed(30)
    assert (await recovery.state()).left == 5
    assert [await owner_gone.sweep(two), await owner_gone.sweep(one)] == [5, 0]
    await recovery.limit(None)
    assert await owner_gone.sweep(one) == 10


async def test_two_workers_at_once_spend_no_more_than_there_is(watch: Watch) -> None:
    await orphans(watch, 20)
    await Recovery(watch.store).limit(7)
    assert sum(await watch.at_once(owner_gone.sweep, "search")) <= 14, "both may free the same seven"
    assert await watch.overdue(Overdue.ORPHANED) >= 13


async def test_a_dead_worker_is_ended_and_only_what_it_held_waits(watch: Watch) -> None:
    context, dead = await watch.context(), await victim(watch)
    for _ in range(5):
        await dead.trial.owned(dead.id)
    await dead.die()
    await Recovery(watch.store).limit(2)
    looks = worker_dead.Looks()
    assert await worker_dead.sweep(context, looks) + await worker_dead.sweep(context, looks) == 1
    assert await watch.overdue(Overdue.ORPHANED) == 3


async def test_while_there_is_a_budget_claims_take_over_no_lapsed_lease_and_the_sweep_frees_them(watch: Watch) -> None:
    context = await watch.context(order)
    mine, other = await watch.trial.worker("mine"), await watch.trial.worker("other")
    rows = [await watch.trial.owned(other) for _ in range(3)]
    await Recovery(watch.store).limit(2)
    await watch.passed(60)
    await watch.trial.beat(mine)
    assert (await watch.trial.claim(mine)).claimed == ()
    assert await lease_lapsed.sweep(context) == 2
    assert {one.process.id for one in (await watch.trial.claim(mine)).claimed} == {row.id for row in rows[:2]}
    await Recovery(watch.store).limit(None)
    assert [one.process.id for one in (await watch.trial.claim(mine)).claimed] == [rows[2].id]


async def test_rows_that_cannot_be_freed_use_up_their_part_once_and_hide_no_others(watch: Watch) -> None:
    context = await watch.context()
    rows = await orphans(watch, 6)
    refuse(context, sorted(rows, key=lambda row: (row.due_at, row.id))[:3])
    await Recovery(watch.store).limit(3, 60)
    assert await owner_gone.sweep(context) == 0
    await watch.passed(60)
    assert await owner_gone.sweep(context) == 3


async def test_a_spent_budget_is_logged_once_and_asked_again_without_haste(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    await orphans(watch, 8)
    await Recovery(watch.store).limit(3)
    with caplog.at_level(logging.WARNING, "perdure.recovery"):
        assert [await owner_gone.sweep(context) for _ in range(5)] == [2, 1, 0, 0, 0]
    assert not context.pages[Overdue.ORPHANED].more
    told = [record.getMessage() for record in caplog.records if "wait, since workers revive" in record.getMessage()]
    assert len(told) == 1 and "3 in 60 s at most" in told[0]


async def test_what_is_no_revival_is_not_of_the_budget(watch: Watch) -> None:
    context = await watch.context()
    await Recovery(watch.store).limit(1)
    for _ in range(4):
        await watch.trial.started(deadline=await watch.store.now() + SECOND)
    await watch.passed(2)
    assert await process_overdue.sweep(context) == 4


async def test_a_budget_that_was_spent_ahead_of_the_clock_lets_others_wait_one_period_at_most(watch: Watch) -> None:
    context = await watch.context()
    await orphans(watch, 4)
    await Recovery(watch.store).limit(2, 60)
    await watch.store.records(Note, [Note("recovery budget", 1, 0, '{"next_at": 9000000000000000}')])
    assert await owner_gone.sweep(context) == 0
    await watch.passed(61)
    assert await owner_gone.sweep(context) == 0, "the debt is one period from now on, as long as it is ahead"
    await watch.store.records(Note, [Note("recovery budget", 2, 0, "{}")])
    assert await owner_gone.sweep(context) == 2


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "9", 10**10])
async def test_a_budget_that_is_no_number_is_refused(watch: Watch, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number from 1"):
        await Recovery(watch.store).limit(wrong)
    assert (await Recovery(watch.store).state()).rate is None


@pytest.mark.parametrize("per", [0, -5, "1m"])
async def test_a_period_that_is_none_is_refused(watch: Watch, per: Any) -> None:
    with pytest.raises(InvalidInput):
        await Recovery(watch.store).limit(5, per)
