"""Whose a recovery was: each find is one event of the history, with the worker and the sweep that found it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import json

from perdure.cli.event_text import detail
from perdure.kernel.commit import Verdict
from perdure.kernel.event import Event, EventType
from perdure.runtime.sweeps import lease_lapsed, owner_gone, worker_silent
from perdure.runtime.sweeps.context import SweepContext
from perdure.testing.conformance.trial import going_on
from tests.sweeps.test_lease_lapsed import beating
from tests.sweeps.test_worker_silent import SILENT
from tests.sweeps.watch import Watch


def told(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The evidence of all revivals in a history."""
    return [json.decode(event.payload or b"") for event in events if event.type is EventType.REVIVED]


async def test_each_find_is_one_event_with_the_worker_and_the_sweep_and_an_old_answer_is_refused(watch: Watch) -> None:
    context, other = await watch.context(), await watch.context()
    dead, silent = await watch.trial.worker("dead"), await watch.trial.worker("silent")
    fell = await watch.trial.owned(dead)
    await watch.store.retire(dead, None, True)
    await both(owner_gone.sweep, context, other)
    hung = await watch.trial.owned(silent)
    await watch.passed(SILENT)
    await both(worker_silent.sweep, context, other)
    [late] = await beating(watch)
    await both(lease_lapsed.sweep, context, other)
    for row, sweep, died in ((fell, "owner gone", True), (hung, "owner gone", False), (late, "lease lapsed", False)):
        history = await watch.store.history(row.id, 1)
        [found] = told(history)
        assert (found["origin"], found["by"], found["sweep"]) == ("automatic", watch.machine.name(), sweep)
        assert found["died"] is died
        assert f"; revived by {watch.machine.name()} ({sweep})" in detail(history[-1], {})
        assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert [one.telemetry.counters["processes_revived"] for one in (context, other)] == [3, 0]


async def both(sweep: Callable[[SweepContext], Awaitable[int]], *contexts: SweepContext) -> None:
    """Two supervisors sweep, one after the other."""
    assert [await sweep(context) for context in contexts] == [1, 0]


async def test_two_workers_that_find_the_dead_at_once_leave_one_event_a_process(watch: Watch) -> None:
    gone = await watch.trial.worker("gone")
    rows = [await watch.trial.owned(gone) for _ in range(3)]
    await watch.store.retire(gone, None, True)
    assert sum(await watch.at_once(owner_gone.sweep)) == 3
    assert [len(told(await watch.store.history(row.id, 1))) for row in rows] == [1, 1, 1]
