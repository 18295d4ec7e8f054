"""Stuck: a process waits for a signal that lies in its inbox; a worker of the first release does not look there."""

from __future__ import annotations

from perdure.clock import SECOND
from perdure.kernel.process import Process
from perdure.kernel.worker import Offer, WorkerRow
from perdure.runtime.sweeps.context import SweepContext
from perdure.runtime.sweeps.signal_overlooked import Look, sweep
from perdure.testing.conformance.trial import LEASE, SILENCE, going_on, resting
from tests.sweeps.watch import Watch, order


async def at_rest(watch: Watch, owner: bytes, awaiting: str, kind: str = "order", signals: int = 1) -> Process:
    """A process that has heard signals ``approval`` and not received them, and then went to rest."""
    row = await watch.trial.owned(owner, kind=kind)
    for _ in range(signals):
        await watch.trial.send(row.id, "approval")
    row = await watch.trial.done(going_on(row, seen=signals, consumed=[(n + 1, 0) for n in range(signals)]))
    due_at = await watch.store.now() + 3600 * SECOND
    return await watch.trial.done(resting(row, due_at, events=(), awaiting=awaiting))


async def of_today(watch: Watch) -> tuple[SweepContext, list[bytes]]:
    """A supervisor among whose peers there is none of the first release, and what it has its worker take."""
    context = await watch.context(order)
    for worker in await watch.store.workers():
        await watch.store.retire(worker.id, None, False)
    return context, context.events.wanted


async def enlisted(watch: Watch, name: str, *, schema: int = 0) -> bytes:
    """One more worker, which knows this schema; those of the first release did not say."""
    id = watch.trial.ids.new_id()
    hosts = Offer(schema=schema).encode() if schema else b'[["order","1"]]'
    await watch.store.enlist(WorkerRow(id, name, hosts), SILENCE)
    return id


async def test_whoever_waits_for_a_signal_that_an_old_worker_overlooked_is_taken_before_it_is_due(watch: Watch) -> None:
    context, taken = await of_today(watch)
    old = await enlisted(watch, "old")
    waits = ("signal approval", "timer, signal approval", "signal other", "timer")
    rows = {awaiting: await at_rest(watch, old, awaiting) for awaiting in waits}
    foreign = await at_rest(watch, old, "signal approval", kind="foreign")
    assert await sweep(context, Look()) == 2
    assert set(taken) == {rows["signal approval"].id, rows["timer, signal approval"].id}
    assert await watch.untouched([*rows.values(), foreign])


async def test_a_suspect_that_waits_for_a_signal_that_lies_there_is_due_since_only_a_quarantine_worker_may_take_it(
    watch: Watch,
) -> None:
    context, taken = await of_today(watch)
    row = await at_rest(watch, await enlisted(watch, "old"), "signal approval")
    await watch.trial.done(resting(row, row.due_at, events=(), deaths=2))
    assert await sweep(context, Look()) == 1
    assert taken == []
    after = await watch.trial.row(row.id)
    assert (after.reminder, after.due_at) == (False, context.time.now())


async def test_inboxes_are_looked_through_until_the_last_worker_of_the_first_release_has_gone(watch: Watch) -> None:
    (context, taken), look = await of_today(watch), Look()
    today = await enlisted(watch, "today", schema=9)
    before = await at_rest(watch, today, "signal approval")
    assert await sweep(context, look) == 1  # a new supervisor looks once: such workers may have been here before it
    assert await sweep(context, look) == 0  # nobody overlooks anything, so that nobody looks
    old = await enlisted(watch, "old")
    await watch.passed(LEASE / SECOND)
    assert await sweep(context, look) == 1
    last = await at_rest(watch, old, "signal approval")
    await watch.store.retire(old, None, False)
    await watch.passed(LEASE / SECOND)
    assert await sweep(context, look) == 2  # what it has left behind
    assert await sweep(context, look) == 0
    assert set(taken) == {before.id, last.id}


async def test_after_a_store_error_the_look_through_the_inboxes_is_still_owed(watch: Watch) -> None:
    (context, taken), look = await of_today(watch), Look()
    row = await at_rest(watch, await enlisted(watch, "today", schema=9), "signal approval")

    async def again(context: SweepContext) -> int:
        return await sweep(context, look)

    assert await watch.after_an_outage(context, again, "messages") == 1
    assert (taken, look.owed) == ([row.id], False)


async def test_an_inbox_from_which_a_letter_is_missing_keeps_no_other_process_from_being_taken(watch: Watch) -> None:
    context, taken = await of_today(watch)
    old = await enlisted(watch, "old")
    rows = [await at_rest(watch, old, "signal approval", signals=2) for _ in range(3)]
    assert await watch.ground.damage(watch.store.store, rows[1].id, "message", "missing: the first")
    assert await sweep(context, Look()) == 2
    assert set(taken) == {rows[0].id, rows[2].id}
    assert [finding.subject for finding in watch.found] == [rows[1].id]
