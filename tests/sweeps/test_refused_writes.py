"""What a sweep has decided and the database refuses: written without its event if that helps, else told of, once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.errors import BadRecord
from perdure.kernel.process import Process, Status
from perdure.runtime.sweeps import process_overdue
from perdure.runtime.sweeps.context import SweepContext
from perdure.testing.conformance.trial import going_on
from tests.sweeps.test_bad_rows import PLANTED, ROUNDS, Plot
from tests.sweeps.watch import Watch, order

FREEING = ["lease_lapsed", "owner_gone", "process_overdue", "process_set_back", "worker_dead", "worker_silent"]
"""The sweeps whose commits append events to histories."""


async def planted(watch: Watch, name: str) -> tuple[Any, Any, Plot, Process]:
    """A sweep, and its rows; the history of the first has one event more than its row counts."""
    plot = Plot(watch)
    plot.damages = [("process", "none")]
    round, moved = await PLANTED[name](watch, await watch.context(order), plot)
    bad = plot.rows[0]
    assert await watch.ground.damage(watch.store.store, bad.id, "process", f"events: {bad.events - 1}")
    return round, moved, plot, bad


@pytest.mark.parametrize("name", FREEING)
async def test_a_history_with_an_event_more_than_its_row_counts_keeps_no_process_from_what_a_sweep_does(
    watch: Watch, name: str
) -> None:
    round, moved, plot, bad = await planted(watch, name)
    for _ in range(2):
        await round()
    assert [row.id for row in (await plot.good()).values() if not moved(row)] == []
    row = await watch.trial.row(bad.id)
    assert row.events == bad.events - 1, "nothing is appended to such a history"


async def refusing(id: bytes, name: str, commits: Any) -> None:
    """The database refuses whatever is written for this process."""
    if name == "commit" and any(commit.after.id == id for commit in commits):
        raise BadRecord("check constraint of another release")


async def overdue(watch: Watch, context: SweepContext) -> tuple[Process, Process]:
    """Two processes past their deadlines; the database takes no commit for the first."""
    at = await watch.store.now() + 1_000_000
    bad, good = [await watch.trial.started(deadline=at) for _ in range(2)]
    await watch.passed(2)
    watch.store.before = partial(refusing, bad.id)
    return bad, good


async def test_a_row_whose_commit_the_database_refuses_is_told_of_once_and_the_others_are_moved(watch: Watch) -> None:
    context = await watch.context(order)
    bad, good = await overdue(watch, context)
    assert [await process_overdue.sweep(context) for _ in range(ROUNDS)] == [1, 0, 0]
    assert (await watch.trial.row(good.id)).status is Status.FAILED
    [finding] = watch.found
    assert (finding.law, finding.subject) == ("row_undecided", bad.id)
    assert "BadRecord: check constraint of another release" in finding.text
    assert context.telemetry.counters["records_unsound"] == 1
    watch.store.before = partial(refusing, b"")
    assert await process_overdue.sweep(context) == 1


async def test_a_row_that_has_changed_since_it_was_told_of_is_told_of_again(watch: Watch) -> None:
    context = await watch.context(order)
    owner = await watch.trial.worker("elsewhere")
    at = await watch.store.now() + 1_000_000
    bad = await watch.trial.owned(owner, deadline=at)
    await watch.passed(2)
    watch.store.before = partial(refusing, bad.id)
    await process_overdue.sweep(context)
    watch.store.before = partial(refusing, b"")
    await watch.trial.done(replace(going_on(bad)))
    watch.store.before = partial(refusing, bad.id)
    for _ in range(ROUNDS):
        await process_overdue.sweep(context)
    assert [finding.subject for finding in watch.found] == [bad.id, bad.id]
