"""Stuck: a process that lives for ever fills the tables with its former runs. Those that ended long ago are removed."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.kernel.run import renewed
from perdure.runtime.sweeps import finished_long_ago
from perdure.runtime.sweeps.context import SweepContext
from perdure.testing.conformance.trial import going_on
from tests.sweeps.watch import DAY, Watch

EVENTS = 4


async def lived(watch: Watch, row: Process, *, puts_back: bool = False, takes: int | None = None) -> Process:
    """One run of a process in hand: a signal, which it may put back, some steps, and on to the next run.

    It may receive before what another run has put back: the signal of the number ``takes``.
    """
    answer = await watch.trial.send(row.id)
    received = [answer.number] if takes is None else [takes, answer.number]
    heard = tuple(
        Event(row.events + n, row.version + 1, EventType.MESSAGE_RECEIVED, row.created_at, name="approval", message=one)
        for n, one in enumerate(received, 1)
    )
    consumed = tuple((number, event.number) for number, event in zip(received, heard, strict=True))
    row = await watch.trial.done(going_on(row, events=heard, seen=answer.number, consumed=consumed))
    row = await watch.trial.done(going_on(row, steps=EVENTS))
    back = (answer.number,) if puts_back else ()
    await watch.trial.done(renewed(row, b"[2]", (), back, now=await watch.store.now()))
    owner = watch.wards[0].incarnation.id
    [taken] = (await watch.trial.claim(owner, only=row.id)).claimed
    return taken.process


async def pruned(context: SweepContext) -> int:
    """Sweep until nothing more is removed; how many runs were."""
    before = context.telemetry.counters["runs_pruned"]
    await finished_long_ago.sweep(context)
    while finished_long_ago.more(context) or context.pruned.behind:
        await finished_long_ago.sweep(context)
    return context.telemetry.counters["runs_pruned"] - before


async def runs_left(watch: Watch, row: Process) -> list[int]:
    return [run for run in range(1, row.run + 1) if await watch.store.history(row.id, run)]


async def test_former_runs_that_ended_long_ago_are_removed_with_the_messages_that_they_received(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(context.incarnation.id)
    for _ in range(3):
        row = await lived(watch, row)
    await watch.passed(DAY + 1)
    for _ in range(2):
        row = await lived(watch, row)
    assert await pruned(context) == 3
    assert await runs_left(watch, row) == [4, 5, 6]
    assert [one.number for one in await watch.store.messages([(row.id, 0)])] == [4, 5]
    assert await watch.sound(row) == row, "who has it in hand goes on"
    assert await pruned(context) == 0


async def test_the_present_run_and_the_one_before_it_stay_however_old_they_are(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(context.incarnation.id)
    for _ in range(3):
        row = await lived(watch, row)
    await watch.passed(100 * DAY)
    assert await pruned(context) == 2
    assert await runs_left(watch, row) == [3, 4]
    await watch.trial.done(going_on(row))


async def test_a_message_that_was_put_back_stays_as_long_as_the_run_that_received_it(watch: Watch) -> None:
    context = await watch.context()
    row = await lived(watch, await watch.trial.owned(context.incarnation.id))
    row = await lived(watch, row, puts_back=True)
    row = await lived(watch, row, takes=2)
    await watch.passed(DAY + 1)
    assert await pruned(context) == 2
    assert [one.number for one in await watch.store.messages([(row.id, 0)])] == [2, 3]
    row = await lived(watch, row)
    row = await lived(watch, row)
    await watch.passed(DAY + 1)
    assert await pruned(context) == 2
    assert [one.number for one in await watch.store.messages([(row.id, 0)])] == [5]


async def test_a_message_whose_event_a_restart_has_kept_stays_as_long_as_that_run(watch: Watch) -> None:
    context = await watch.context()
    row = await lived(watch, await watch.trial.owned(context.incarnation.id))
    kept = Event(row.events + 1, row.version + 1, EventType.MESSAGE_RECEIVED, row.created_at, "", "approval", message=1)
    row = await watch.trial.done(going_on(row, events=(kept,)))
    row = await lived(watch, row)
    await watch.passed(DAY + 1)
    assert await pruned(context) == 1
    assert [one.number for one in await watch.store.messages([(row.id, 0)])] == [1, 2], "it may have to be answered yet"
    row = await lived(watch, row)
    await watch.passed(DAY + 1)
    assert await pruned(context) == 1
    assert [one.number for one in await watch.store.messages([(row.id, 0)])] == [3]


async def test_a_key_of_a_message_is_known_for_as_long_as_keys_are(watch: Watch) -> None:
    context = await watch.context()
    context.key_retention = 3 * DAY
    row = await watch.trial.owned(context.incarnation.id)
    keyed = await watch.trial.send(row.id, key="once")
    heard = Event(1, row.version + 1, EventType.MESSAGE_RECEIVED, row.created_at, name="approval", message=keyed.number)
    row = await watch.trial.done(going_on(row, events=(heard,), seen=1, consumed=((1, 1),)))
    for _ in range(3):
        row = await lived(watch, row)
    await watch.passed(DAY + 1)
    assert await pruned(context) == 2
    assert (await watch.trial.send(row.id, key="once")).number == keyed.number
    await watch.passed(2 * DAY)
    for _ in range(2):
        row = await lived(watch, row)
    await watch.passed(DAY + 1)
    assert await pruned(context) == 2
    assert 1 not in {one.number for one in await watch.store.messages([(row.id, 0)])}


async def test_a_long_run_is_removed_in_portions_and_many_processes_page_after_page(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    rows = []
    for _ in range(5):
        row = await watch.trial.owned(context.incarnation.id)
        row = await watch.trial.done(going_on(row, steps=1_000))
        for _ in range(2):
            row = await lived(watch, row)
        rows.append(row)
    await watch.passed(DAY + 1)
    await pruned(context)
    for row in rows:
        assert await runs_left(watch, row) == [2, 3]


async def test_what_lives_on_and_was_never_continued_loses_nothing(watch: Watch) -> None:
    context = await watch.context()
    row = await lived(watch, await watch.trial.owned(context.incarnation.id))
    await watch.passed(100 * DAY)
    before = await watch.trial.whole(row.id)
    assert await pruned(context) == 0
    assert await watch.trial.whole(row.id) == before
