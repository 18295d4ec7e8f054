"""Stuck: a worker has ended and rows still name it as their owner. They are freed, an evidenced death is counted."""

from __future__ import annotations

import pytest
from msgspec import json

from perdure import limits
from perdure.client.held import held_by
from perdure.client.recovery import Recovery
from perdure.kernel.commit import Verdict
from perdure.kernel.diagnosis import next_mover
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.runtime.sweeps import owner_gone
from perdure.store.base import Overdue
from perdure.testing.conformance.lettering import bulk
from perdure.testing.conformance.trial import forced, going_on
from tests.sweeps.watch import Watch


async def test_rows_of_an_ended_worker_are_free_and_due_at_once(watch: Watch) -> None:
    context = await watch.context()
    ended = await watch.trial.worker("ended")
    rows = [await watch.trial.owned(ended) for _ in range(3)]
    neighbours = [await watch.trial.owned(await watch.trial.worker("alive")), await watch.trial.started()]
    await watch.store.retire(ended, None, True)
    assert await owner_gone.sweep(context) == 3
    for row in rows:
        freed = await watch.sound(row)
        assert (freed.owner, freed.token, freed.due_at) == (None, row.token + 1, await watch.store.now())
        assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert await watch.untouched(neighbours)
    assert await owner_gone.sweep(context) == 0


async def test_of_all_workers_that_have_ended_only_the_owner_is_read(watch: Watch) -> None:
    context, asked = await watch.context(), []

    async def note(name: str, argument: object) -> None:
        if name == "workers":
            asked.append(argument)

    dead = await watch.trial.worker("dead")
    await watch.trial.owned(dead)
    await watch.store.retire(dead, None, True)
    watch.store.before = note
    assert await owner_gone.sweep(context) == 1
    assert asked == [{dead}]


async def test_rule_13_an_evidenced_death_counts_and_is_recorded_with_the_worker(watch: Watch) -> None:
    context = await watch.context()
    dead = await watch.trial.worker("dead")
    row = await watch.trial.owned(dead)
    await watch.store.retire(dead, None, True)
    await owner_gone.sweep(context)
    assert (await watch.sound(row)).deaths == 1
    [event] = await watch.store.history(row.id, 1)
    assert event.type is EventType.REVIVED
    evidence = json.decode(event.payload or b"")
    assert evidence["worker"].startswith("dead ")
    assert evidence["died"]


async def test_rule_13_a_worker_that_said_goodbye_makes_nobody_a_suspect(watch: Watch) -> None:
    context = await watch.context()
    for _ in range(limits.SUSPECT_DEATHS + 1):
        stopped = await watch.trial.worker("stopped")
        row = await watch.trial.owned(stopped)
        await watch.store.retire(stopped, None, False)
        assert await owner_gone.sweep(context) == 1
        assert (await watch.sound(row)).deaths == 0


async def test_rule_13_a_process_that_died_too_often_alone_is_parked_with_the_evidence(watch: Watch) -> None:
    context = await watch.context()
    first = await watch.trial.worker()
    row = await watch.trial.owned(first)
    for death in range(limits.SUSPECT_DEATHS + limits.ALONE_DEATHS):
        worker = first if death == 0 else await watch.trial.worker()
        if death:
            alone = death >= limits.SUSPECT_DEATHS
            [_] = (await watch.trial.claim(worker, only=row.id, alone=alone)).claimed
        await watch.store.retire(worker, None, True)
        assert await owner_gone.sweep(context) == 1
    parked = await watch.sound(row)
    assert (parked.status, parked.deaths, parked.alone_deaths) == (Status.BROKEN, 2, 3)
    assert b"perdure" not in (parked.error or b"")
    assert "look at what its step does, then `perdure retry`" in next_mover(parked, 0, {}).text


async def test_two_supervisors_at_once_count_each_death_once(watch: Watch) -> None:
    dead = await watch.trial.worker("dead")
    rows = [await watch.trial.owned(dead) for _ in range(5)]
    await watch.store.retire(dead, None, True)
    assert sum(await watch.at_once(owner_gone.sweep)) == 5
    for row in rows:
        assert (await watch.sound(row)).deaths == 1
        assert len(await watch.store.history(row.id, 1)) == 1


async def test_a_round_frees_a_bounded_batch_and_the_next_rounds_the_rest(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    ended = await watch.trial.worker("ended")
    for _ in range(5):
        await watch.trial.owned(ended)
    await watch.store.retire(ended, None, False)
    assert [await owner_gone.sweep(context) for _ in range(4)] == [2, 2, 1, 0]
    assert await watch.overdue(Overdue.ORPHANED) == 0


async def test_of_large_rows_a_round_frees_what_one_answer_holds_and_knows_how_many_are_left(watch: Watch) -> None:
    context = await watch.context()
    dead = await watch.trial.worker("dead")
    for _ in range(6):
        await watch.trial.done(forced(await watch.trial.owned(dead, input=bulk(1_900_000)), deaths=1))
    assert len((await watch.trial.claim(dead)).claimed) + len((await watch.trial.claim(dead)).claimed) == 6
    [worker] = [one for one in await watch.store.workers() if one.id == dead]
    await watch.store.retire(dead, None, True)
    [orphans] = [one for one in await Recovery(watch.store).progress() if one.sweep == "owner gone"]
    assert (await held_by(watch.store, worker), orphans.waiting, orphans.more) == (6, 6, False)
    assert await owner_gone.sweep(context) == 4
    assert (context.pages[Overdue.ORPHANED].more, context.pages[Overdue.ORPHANED].left) == (True, 2)
    suspects = [row for row in await watch.trial.stored() if row.deaths == 2]
    assert {row.alone_deaths for row in suspects} == {-3}, "half of six, which were held at once"
    assert [await owner_gone.sweep(context) for _ in range(2)] == [2, 0]
    assert await watch.overdue(Overdue.ORPHANED) == 0


async def test_after_a_store_error_the_next_round_finds_the_orphans_again(watch: Watch) -> None:
    context = await watch.context()
    ended = await watch.trial.worker("ended")
    row = await watch.trial.owned(ended)
    await watch.store.retire(ended, None, False)
    assert await watch.after_an_outage(context, owner_gone.sweep, "search") == 1
    assert (await watch.sound(row)).owner is None
