"""Stuck: a worker hangs, is stopped, or its machine goes dark. Its beats are overdue: it is ended, its rows freed."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.commit import Verdict
from perdure.kernel.worker import WorkerRow
from perdure.runtime.sweeps import owner_gone, worker_dead, worker_silent
from perdure.testing.conformance.trial import SILENCE, going_on
from tests.sweeps.watch import Watch

SILENT = SILENCE / SECOND + 1


async def test_a_silent_worker_is_ended_and_all_that_it_held_is_due_now(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    silent = await watch.trial.worker("silent")
    rows = [await watch.trial.owned(silent) for _ in range(5)]
    assert await worker_silent.sweep(context) == 0
    await watch.passed(SILENT)
    assert await worker_silent.sweep(context) == 1
    for row in rows:
        freed = await watch.sound(row)
        assert (freed.owner, freed.token, freed.due_at) == (None, row.token + 1, await watch.store.now())
    assert context.telemetry.counters[owner_gone.COUNTER] == 5
    assert await worker_silent.sweep(context) == 0


async def test_rule_13_silence_is_no_evidence_of_a_death(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker("silent"))
    await watch.passed(SILENT)
    assert await worker_silent.sweep(context) == 1
    assert (await watch.sound(row)).deaths == 0


async def test_the_late_answer_of_a_silent_worker_is_refused_and_it_is_told(watch: Watch) -> None:
    context = await watch.context()
    paused = await watch.trial.worker("paused")
    row = await watch.trial.owned(paused)
    await watch.passed(SILENT)
    await worker_silent.sweep(context)
    assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert not (await watch.trial.beat(paused, row)).alive


async def test_a_worker_that_beats_is_not_ended_by_others(watch: Watch) -> None:
    context = await watch.context()
    alive = await watch.trial.worker("alive")
    neighbour = await watch.trial.owned(alive)
    await watch.passed(SILENT - 2)
    await watch.trial.beat(alive)
    await watch.passed(2)
    assert await worker_silent.sweep(context) == 0
    assert await watch.untouched([neighbour])


async def test_a_supervisor_that_is_silent_itself_does_not_end_itself(watch: Watch) -> None:
    context = await watch.context()
    await watch.ground.time.advance(SILENT)
    watch.machine.advance(SILENT)
    assert await worker_silent.sweep(context) == 0


async def test_rule_12_nobody_is_judged_right_after_the_store_was_away(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker("cut off as we were"))
    await watch.passed(SILENT)
    context.steady = lambda: False
    assert await worker_silent.sweep(context) == 0
    assert await watch.untouched([row])
    context.steady = lambda: True
    assert await worker_silent.sweep(context) == 1


async def test_two_supervisors_at_once_count_a_silent_worker_once(watch: Watch) -> None:
    silent = await watch.trial.worker("silent")
    rows = [await watch.trial.owned(silent) for _ in range(4)]
    await watch.ground.time.advance(SILENT)
    watch.machine.advance(SILENT)
    assert sum(await watch.at_once(worker_silent.sweep, "retire")) == 1
    assert sum(context.telemetry.counters[owner_gone.COUNTER] for context in watch.wards) == len(rows)
    for row in rows:
        assert len(await watch.store.history(row.id, 1)) == 1


async def test_after_a_store_error_the_next_round_finds_the_silent_worker_again(watch: Watch) -> None:
    context = await watch.context()
    await watch.trial.owned(await watch.trial.worker("silent"))
    await watch.passed(SILENT)
    assert await watch.after_an_outage(context, worker_silent.sweep, "retire") == 1


async def test_what_the_probe_has_just_read_is_not_read_again(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    context = await watch.context()
    read, reads = context.store.workers, []

    async def counted() -> list[WorkerRow]:
        reads.append(context.time.monotonic())
        return await read()

    monkeypatch.setattr(context.store, "workers", counted)
    await worker_dead.sweep(context, worker_dead.Looks())
    await worker_silent.sweep(context)
    assert len(reads) == 1
    await watch.passed(2)
    await worker_silent.sweep(context)
    assert len(reads) == 2
