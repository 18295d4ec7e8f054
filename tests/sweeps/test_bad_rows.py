"""One bad row keeps no other waiting: every damage in a row of its own, beside ten good ones, for every sweep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel import transition
from perdure.kernel.command import wish
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.runtime import sweeps
from perdure.runtime.sweeps import (
    finished_long_ago,
    lease_lapsed,
    owner_gone,
    process_idle,
    process_overdue,
    process_set_back,
    record_unsound,
    signal_overlooked,
    unhosted,
    worker_dead,
    worker_silent,
)
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Search
from perdure.store.failover import Lineage, Regression
from perdure.testing.conformance.trial import LEASE, SILENCE, finished, going_on, resting
from tests.sweeps.test_record_unsound import RATE, due
from tests.sweeps.test_worker_dead import victim
from tests.sweeps.watch import DAY, Watch, order

GOOD = 10
ROUNDS = 3
ASKER = Sender("ann", "it is late").encode()

Round = Callable[[], Awaitable[int]]
Moved = Callable[[Process], bool]


class Plot:
    """The rows of one trial: ten good ones, and one for each bad value that the database takes."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        tables = ("process", "event", "message")
        self.damages = [(table, what) for table in tables for what in watch.ground.damages(table)]
        self.rows: list[Process] = []

    async def planted(self, owner: bytes, *, wished: bool = False, sent: bool = True, **fields: Any) -> None:
        """Have all of them in this worker's hand, each with a key, an event and a message, perhaps a wish to cancel."""
        trial = self.watch.trial
        for number in range(GOOD + len(self.damages)):
            row = await trial.done(going_on(await trial.owned(owner, key=f"key {number}", **fields)))
            if not sent:
                self.rows.append(row)
                continue
            until = wish(Sender("ann"), fields.get("deadline", 0))
            more = {"type": MessageType.CANCEL, "payload": until, "sender": ASKER} if wished else {}
            await trial.send(row.id, **more)
            self.rows.append(await trial.row(row.id))

    async def each(self, commit: Callable[[Process], Commit]) -> None:
        """Commit something for every one of them."""
        self.rows = [await self.watch.trial.done(commit(row)) for row in self.rows]

    async def damaged(self) -> int:
        """Write the bad values; the answer is how many the database took."""
        store = self.watch.store.store
        bad = zip(self.rows[GOOD:], self.damages, strict=True)
        return sum([await self.watch.ground.damage(store, row.id, *damage) for row, damage in bad])

    async def good(self) -> dict[bytes, Process]:
        """The good ones as they are now."""
        ids = tuple(row.id for row in self.rows[:GOOD])
        return {row.id: row for row in await self.watch.store.search(Search(ids=ids, limit=GOOD, tasks=True))}


Planted = tuple[Round, Moved]


def freed(row: Process) -> bool:
    return row.owner is None


async def plant_worker_dead(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    dead = await victim(watch)
    await plot.planted(dead.id)
    await dead.die()
    return partial(worker_dead.sweep, context, worker_dead.Looks()), freed


async def plant_worker_silent(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    await plot.planted(await watch.trial.worker("silent"))
    await watch.passed(SILENCE / SECOND + 1)
    return partial(worker_silent.sweep, context), freed


async def plant_owner_gone(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    ended = await watch.trial.worker("ended")
    await plot.planted(ended)
    await watch.store.retire(ended, None, False)
    return partial(owner_gone.sweep, context), freed


async def plant_lease_lapsed(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    await plot.planted(await watch.trial.worker("elsewhere"), kind="foreign")
    await watch.passed(LEASE / SECOND + 1)
    return partial(lease_lapsed.sweep, context), freed


async def plant_process_overdue(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    deadline = await watch.store.now() + 60 * SECOND
    await plot.planted(await watch.trial.worker("elsewhere"), wished=True, deadline=deadline)
    await watch.passed(61)
    return partial(process_overdue.sweep, context), lambda row: row.status is Status.CANCELLED


async def plant_process_idle(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    at = await watch.store.now() + SECOND
    await plot.planted(await watch.trial.worker("before"))
    await plot.each(lambda row: resting(row, at, Status.HELD))
    await watch.passed(2)
    return partial(process_idle.sweep, context), lambda row: row.due_at != at


async def plant_signal_overlooked(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    at = await watch.store.now() + 3600 * SECOND
    await plot.planted(await watch.trial.worker("of the first release"))
    await plot.each(lambda row: going_on(row, seen=1, consumed=((1, 0),)))
    await plot.each(lambda row: resting(row, at, events=(), awaiting="signal approval"))
    return partial(
        signal_overlooked.sweep, context, signal_overlooked.Look()
    ), lambda row: row.id in context.events.wanted


async def plant_finished_long_ago(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    await plot.planted(await watch.trial.worker("before"), sent=False)
    await plot.each(finished)
    await watch.passed(DAY + 1)
    return partial(finished_long_ago.sweep, context), lambda row: False


async def plant_unhosted(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    at = await watch.store.now() + SECOND
    await plot.planted(await watch.trial.worker("before"), kind="foreign")
    await plot.each(lambda row: replace(resting(row, at), after=replace(resting(row, at).after, reminder=False)))
    await watch.passed(62)

    def told(row: Process) -> bool:
        return any("'foreign'" in finding.text for finding in watch.found)

    return partial(unhosted.sweep, context, unhosted.Known()), told


async def plant_record_unsound(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    await plot.planted(await watch.trial.worker())
    await plot.each(lambda row: replace(going_on(row), after=replace(going_on(row).after, events=9)))

    def told(row: Process) -> bool:
        return row.id in {finding.subject for finding in watch.found}

    place, context.check_rate = record_unsound.Position(), RATE

    async def rounds() -> int:
        found = 0
        for _ in range(len(plot.rows) // limits.CHECK_ROWS + 2):
            await due(watch)
            found += await record_unsound.sweep(context, place)
        return found

    return rounds, told


async def plant_process_set_back(watch: Watch, context: SweepContext, plot: Plot) -> Planted:
    lineage = Lineage(watch.machine, {})
    watch.store.backend.lineage = lineage  # type: ignore[attr-defined]
    await plot.planted(await watch.trial.worker("before"))
    found = Regression("a fail-over has set it back", 1)
    lineage.set_back = dict.fromkeys([row.id for row in plot.rows], found)
    return partial(process_set_back.sweep, context), lambda row: row.status is Status.HELD


PLANTED = {name.removeprefix("plant_"): plant for name, plant in list(globals().items()) if name.startswith("plant_")}


def test_no_sweep_is_without_its_bad_rows() -> None:
    found = {path.stem for path in Path(sweeps.__path__[0]).glob("[a-z]*.py")} - {"context"}
    assert found == PLANTED.keys()


@pytest.mark.parametrize("name", sorted(PLANTED))
async def test_beside_a_bad_row_of_every_kind_the_ten_good_ones_are_moved(watch: Watch, name: str) -> None:
    plot = Plot(watch)
    round, moved = await PLANTED[name](watch, await watch.context(order), plot)
    assert await plot.damaged() > 60
    for _ in range(ROUNDS):
        await round()
    assert [row.id for row in (await plot.good()).values() if not moved(row)] == []


UNDECIDED = {
    "lease_lapsed": "orphaned",
    "owner_gone": "orphaned",
    "process_overdue": "terminated",
    "worker_dead": "orphaned",
    "worker_silent": "orphaned",
}
"""The sweeps that decide row by row, and what of the kernel does not know what to make of one."""


@pytest.mark.parametrize("name", UNDECIDED)
async def test_a_row_about_which_nothing_can_be_decided_is_told_of_once_and_the_others_are_moved(
    watch: Watch, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = Plot(watch)
    plot.damages = [("process", "none")]
    context = await watch.context(order)
    round, moved = await PLANTED[name](watch, context, plot)
    bad = plot.rows[0]
    decide = getattr(transition, UNDECIDED[name])

    def decided(row: Process, *rest: Any, **more: Any) -> Commit:
        if row.id == bad.id:
            raise ValueError("it is not known what to make of it")
        commit: Commit = decide(row, *rest, **more)
        return commit

    monkeypatch.setattr(transition, UNDECIDED[name], decided)
    for _ in range(ROUNDS):
        await round()
    assert [row.id for row in (await plot.good()).values() if not moved(row)] == [bad.id]
    [text] = [finding.text for finding in watch.found if finding.subject == bad.id]
    assert "nothing can be decided about it: ValueError: it is not known what to make of it" in text


async def test_a_child_whose_beginning_cannot_be_read_keeps_neither_its_parent_nor_others_from_their_end(
    watch: Watch,
) -> None:
    context = await watch.context(order)
    deadline = await watch.store.now() + 60 * SECOND
    owner = await watch.trial.worker("elsewhere")
    rows = [await watch.trial.owned(owner, deadline=deadline) for _ in range(3)]
    garbled = (Event(1, rows[1].version + 1, EventType.CHILD_STARTED, rows[1].created_at, "1", "pay", b"{"),)
    await watch.trial.done(going_on(rows[1], events=garbled))
    await watch.passed(61)
    for _ in range(ROUNDS):
        await process_overdue.sweep(context)
    statuses = [(await watch.trial.row(row.id)).status for row in rows]
    assert (statuses, watch.found) == ([Status.FAILED] * 3, [])


async def test_who_was_asked_to_end_is_ended_although_it_cannot_be_read_by_whom(watch: Watch) -> None:
    deadline = await watch.store.now() + 60 * SECOND
    row = await watch.trial.owned(await watch.trial.worker("elsewhere"), deadline=deadline)
    wanted = wish(Sender("ann"), deadline)
    await watch.trial.send(row.id, type=MessageType.CANCEL, payload=wanted, sender=b"{")
    context = await watch.context(order)
    await watch.passed(61)
    assert await process_overdue.sweep(context) == 1
    ended = await watch.trial.row(row.id)
    assert ended.status is Status.CANCELLED
    assert b"who asked for it cannot be read" in (ended.error or b"")
