"""Row 104: while a person has paused automatic recovery nothing is ended, taken over or forced; work goes on."""

from __future__ import annotations

import logging

import pytest

from perdure.client.queues import Queues
from perdure.client.recovery import Recovery
from perdure.clock import SECOND
from perdure.kernel.process import Status
from perdure.kernel.queue import Queue
from perdure.runtime.sweeps import lease_lapsed, owner_gone, process_overdue, worker_dead, worker_silent
from perdure.store.base import switch
from tests.sweeps.test_worker_dead import victim
from tests.sweeps.watch import Watch


async def test_while_recovery_is_paused_no_sweep_ends_frees_or_forces_anything_and_each_says_what_it_found(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    context, dead = await watch.context(), await victim(watch)
    recovery = Recovery(watch.store)
    held = await dead.trial.owned(dead.id)
    late = await watch.trial.started(deadline=await watch.store.now() + SECOND)
    await dead.die()
    await recovery.pause(who="Ann", why="the release is broken")
    await watch.ground.time.advance(60)
    looks = worker_dead.Looks()
    with caplog.at_level(logging.WARNING, "perdure"):
        for _ in range(3):
            assert await worker_dead.sweep(context, looks) == 0
            assert await worker_silent.sweep(context) == 0
            assert await owner_gone.sweep(context) == 0
            assert await lease_lapsed.sweep(context) == 0
            assert await process_overdue.sweep(context) == 0
    assert (await watch.trial.row(held.id)).owner == dead.id
    assert (await watch.trial.row(late.id)).status is Status.RUNNING
    assert {worker.id for worker in await watch.store.workers()} >= {dead.id}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told)), "each is reported once"
    assert any(text.startswith("dead workers: victim: left alone") for text in told)
    assert all("by Ann because: the release is broken" in text for text in told)
    assert any("processes over their deadlines: left alone" in text for text in told)
    await recovery.resume(who="Ann")
    assert await process_overdue.sweep(context) == 1
    assert await worker_dead.sweep(context, looks) + await worker_silent.sweep(context) == 1
    assert (await watch.trial.row(held.id)).owner is None


async def test_while_recovery_is_paused_no_claim_takes_a_lapsed_lease_and_any_takes_what_is_due(
    watch: Watch,
) -> None:
    trial = watch.trial
    mine, other = await trial.worker(), await trial.worker()
    lapsed = await trial.owned(other)
    await Recovery(watch.store).pause(who="Ann")
    await watch.ground.time.advance(60)
    due = await trial.started()
    assert [one.process.id for one in (await trial.claim(mine)).claimed] == [due.id]
    assert (await trial.claim(mine, only=lapsed.id)).claimed == ()
    await Recovery(watch.store).resume()
    [taken] = (await trial.claim(mine)).claimed
    assert (taken.process.id, taken.was_owned_by) == (lapsed.id, other)


async def test_a_lapsed_task_of_a_limited_queue_is_left_alone_as_well(watch: Watch) -> None:
    trial = watch.trial
    await watch.store.records(Queue, [Queue("bank", 1, concurrency=5)])
    mine, other = await trial.worker(), await trial.worker()
    lapsed = await trial.owned(other, kind="@bank")
    await Recovery(watch.store).pause()
    await watch.ground.time.advance(60)
    for _ in range(2):
        assert (await trial.claim(mine, hosted=(("@bank", lapsed.code),))).claimed == ()
    await Recovery(watch.store).resume()
    [taken] = (await trial.claim(mine, hosted=(("@bank", lapsed.code),))).claimed
    assert taken.process.id == lapsed.id


async def test_the_switch_says_who_paused_it_first_when_and_why_and_who_has_changed_it_last(
    watch: Watch,
) -> None:
    recovery = Recovery(watch.store)
    state = await recovery.state()
    assert (state.paused, state.changed_at) == (False, None)
    await recovery.pause(who="Ann", why="first", origin="cli")
    state = await recovery.pause(who="Bob", why="second")
    assert state.paused and state.paused_at is not None
    assert (state.paused_by, state.paused_why, state.who, state.why) == ("Ann", "first", "Bob", "second")
    assert await Recovery(watch.store).state() == state
    state = await recovery.resume(who="Cid", why="mended", origin="cli")
    assert (state.paused, state.paused_by, state.who, state.origin) == (False, "", "Cid", "cli")
    assert (await switch(watch.store)).version == 3
    assert await Queues(watch.store).list() == []
