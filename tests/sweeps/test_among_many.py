"""Among many rows that need nothing, each sweep finds the one that is stuck: nothing is cut at the first page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec import Raw, json
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.queue import Task
from perdure.clock import SECOND
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Commit, Start, Verdict
from perdure.kernel.process import Process, Status
from perdure.runtime import sweeps
from perdure.runtime.supervisor import Supervisor
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
from perdure.store.failover import Lineage, Regression
from perdure.testing.conformance.trial import LEASE, SILENCE, finished, going_on, released, resting
from tests.sweeps.test_record_unsound import RATE, due
from tests.sweeps.test_worker_dead import victim
from tests.sweeps.watch import DAY, Watch, order

PAGE, HEALTHY = 20, 90
"""Of each sweep's page, and of the rows that need nothing: more than any page."""
LONG = 3600 * SECOND

Round = Callable[[], Awaitable[int]]
Planted = tuple[Round, Callable[[], Awaitable[bool]]]
"""A round of the sweep, and whether the one that was stuck is free, or told of."""


async def started(watch: Watch, number: int, **fields: object) -> list[Process]:
    """Start so many processes at once."""
    rows = [watch.trial.process(**fields) for _ in range(number)]
    await watch.store.start([Start(row) for row in rows])
    return rows


async def in_hand(watch: Watch, owner: bytes, number: int, lease: int = LEASE, **fields: object) -> list[Process]:
    """Start so many processes and claim them for this worker, all at once; they are as they were after the claim."""
    [first, *_] = await started(watch, number, **fields)
    found = await watch.store.claim(Claim(owner, ((first.kind, first.code),), number, lease))
    assert len(found.claimed) == number
    return [taken.process for taken in found.claimed]


async def done(watch: Watch, commits: Sequence[Commit]) -> None:
    answers = await watch.store.commit(commits)
    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}


def refuse(context: SweepContext, rows: Sequence[Process]) -> None:
    """Let what a sweep writes for these come to nothing, each time: others are quicker, or hold them fast."""
    stubborn, write = {row.id for row in rows}, context.write

    async def written(commits: Sequence[Commit]) -> list[Commit]:
        return await write([one for one in commits if one.after.id not in stubborn])

    context.write = written  # type: ignore[method-assign]


def until(watch: Watch, row: Process, *, freed: Callable[[Process], bool]) -> Callable[[], Awaitable[bool]]:
    async def true() -> bool:
        return freed(await watch.trial.row(row.id))

    return true


def told(watch: Watch, row: Process) -> Callable[[], Awaitable[bool]]:
    async def true() -> bool:
        return row.id in {finding.subject for finding in watch.found}

    return true


async def plant_worker_dead(watch: Watch, context: SweepContext) -> Planted:
    for number in range(HEALTHY):
        await watch.trial.worker(f"healthy {number}")
    dead = await victim(watch)
    row = await dead.trial.owned(dead.id)
    await dead.die()
    return partial(worker_dead.sweep, context, worker_dead.Looks()), until(watch, row, freed=lambda now: not now.owner)


async def plant_worker_silent(watch: Watch, context: SweepContext) -> Planted:
    silent = await watch.trial.worker("silent")
    row = await watch.trial.owned(silent)
    await watch.passed(SILENCE / SECOND + 1)
    for number in range(HEALTHY):
        await watch.trial.worker(f"healthy {number}")
    return partial(worker_silent.sweep, context), until(watch, row, freed=lambda now: not now.owner)


async def plant_owner_gone(watch: Watch, context: SweepContext) -> Planted:
    """Many whose owner lives, and many of an ended one that others hold fast; behind them one of an ended worker."""
    ended = await watch.trial.worker("ended")
    stubborn = await in_hand(watch, ended, HEALTHY)
    await in_hand(watch, await watch.trial.worker("alive"), HEALTHY)
    await watch.passed(1)
    [row] = await in_hand(watch, ended, 1)
    await watch.store.retire(ended, None, False)
    refuse(context, stubborn)
    return partial(owner_gone.sweep, context), until(watch, row, freed=lambda now: not now.owner)


async def plant_lease_lapsed(watch: Watch, context: SweepContext) -> Planted:
    owner = await watch.trial.worker("elsewhere")
    await in_hand(watch, owner, HEALTHY)
    await watch.passed(1)
    [row] = await in_hand(watch, owner, 1, kind="foreign")
    await watch.passed(LEASE / SECOND + 1)
    return partial(lease_lapsed.sweep, context), until(watch, row, freed=lambda now: not now.owner)


async def plant_process_overdue(watch: Watch, context: SweepContext) -> Planted:
    now = await watch.store.now()
    input = json.encode(Task("pay", "k", Raw(b"[]"), force=False))
    worker = await watch.trial.worker("bank")
    await in_hand(watch, worker, HEALTHY, LONG, kind="@bank", code="", input=input, deadline=now + SECOND)
    [row] = await started(watch, 1, deadline=now + 2 * SECOND)
    await watch.passed(3)
    return partial(process_overdue.sweep, context), until(watch, row, freed=lambda now: now.status is Status.FAILED)


async def plant_process_idle(watch: Watch, context: SweepContext) -> Planted:
    now = await watch.store.now()
    owner = await watch.trial.worker("before")
    rows = await in_hand(watch, owner, HEALTHY)
    await done(watch, [resting(row, now + SECOND, Status.HELD) for row in rows])
    [row] = await in_hand(watch, owner, 1)
    await done(watch, [resting(row, now + 2 * SECOND, Status.HELD)])
    await watch.passed(3)
    refuse(context, rows)
    return partial(process_idle.sweep, context), until(watch, row, freed=lambda one: one.due_at != now + 2 * SECOND)


async def plant_signal_overlooked(watch: Watch, context: SweepContext) -> Planted:
    """Many with signals that they do not wait for, and one with the one that it waits for."""
    owner = await watch.trial.worker("of the first release")
    now = await watch.store.now()
    row, *rows = sorted(await in_hand(watch, owner, HEALTHY + 1), key=lambda one: one.id, reverse=True)
    for one in (row, *rows):
        await watch.trial.send(one.id, "go")
    going = [going_on(one, seen=1, consumed=((1, 0),)) for one in (row, *rows)]
    await done(watch, going)
    row, *rows = [await watch.trial.row(one.after.id) for one in going]
    await done(watch, [resting(one, now + LONG, events=(), awaiting="signal stop") for one in rows])
    await done(watch, [resting(row, now + LONG, events=(), awaiting="signal go")])

    async def found() -> bool:
        return row.id in context.events.wanted

    return partial(signal_overlooked.sweep, context, signal_overlooked.Look()), found


async def plant_finished_long_ago(watch: Watch, context: SweepContext) -> Planted:
    owner = await watch.trial.worker("before")
    [row] = await in_hand(watch, owner, 1)
    await done(watch, [finished(row)])
    await watch.passed(DAY)
    await done(watch, [finished(one) for one in await in_hand(watch, owner, HEALTHY)])
    await started(watch, HEALTHY)
    await watch.passed(1)

    async def gone() -> bool:
        rows = await watch.trial.stored()
        return len(rows) == 2 * HEALTHY and row.id not in {one.id for one in rows}

    return partial(finished_long_ago.sweep, context), gone


async def plant_unhosted(watch: Watch, context: SweepContext) -> Planted:
    """Many of each of many kinds that wait, and one of a kind of its own behind them."""
    for number in range(4):
        await started(watch, HEALTHY, kind=f"loud {number}")
    for number in range(PAGE):
        await started(watch, 1, kind=f"medium {number}")
    await watch.passed(1)
    [row] = await started(watch, 1, kind="small")
    await watch.passed(61)
    return partial(unhosted.sweep, context, unhosted.Known()), told(watch, row)


async def plant_record_unsound(watch: Watch, context: SweepContext) -> Planted:
    row = await watch.trial.owned(await watch.trial.worker())
    commit = released(row, await watch.store.now() + 1)
    await watch.trial.done(replace(commit, after=replace(commit.after, events=9)))
    await started(watch, HEALTHY)
    place, context.check_rate = record_unsound.Position(), RATE

    async def page() -> int:
        await due(watch)
        return await record_unsound.sweep(context, place)

    return page, told(watch, row)


async def plant_process_set_back(watch: Watch, context: SweepContext) -> Planted:
    lineage = Lineage(watch.machine, {})
    watch.store.backend.lineage = lineage  # type: ignore[attr-defined]
    rows = await in_hand(watch, await watch.trial.worker("before"), HEALTHY)
    await done(watch, [finished(row) for row in rows])
    [row] = await started(watch, 1)
    found = Regression("a fail-over has set it back", row.token)
    lineage.set_back = dict.fromkeys([*(one.id for one in rows), row.id], found)
    return partial(process_set_back.sweep, context), until(watch, row, freed=lambda now: now.status is Status.HELD)


PLANTED = {name.removeprefix("plant_"): plant for name, plant in list(globals().items()) if name.startswith("plant_")}


def test_no_sweep_is_without_its_one_among_many() -> None:
    found = {path.stem for path in Path(sweeps.__path__[0]).glob("[a-z]*.py")} - {"context"}
    assert found == PLANTED.keys()


@pytest.mark.parametrize("name", sorted(PLANTED))
async def test_among_many_that_need_nothing_the_one_that_is_stuck_is_found_within_a_few_rounds(
    watch: Watch, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", PAGE)
    monkeypatch.setattr(limits, "CHECK_ROWS", PAGE)
    round, free = await PLANTED[name](watch, await watch.context(order))
    assert not await free()
    for _ in range(HEALTHY // PAGE + 2):
        await round()
        if await free():
            return
    pytest.fail("nobody has found it")


async def test_of_what_nobody_hosts_as_many_as_a_page_shows_are_told_as_at_least_so_many(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", PAGE)
    context, known = await watch.context(), unhosted.Known()
    await started(watch, HEALTHY, kind="loud")
    await started(watch, 3, kind="small")
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == PAGE // 2 + 3
    loud, small = sorted(finding.text for finding in watch.found)
    assert loud.startswith("3 processes of kind 'small'") and small.startswith("at least 10 processes of kind 'loud'")
    assert await unhosted.sweep(context, known) == 0


async def test_what_nobody_hosts_is_told_once_however_many_pages_there_are(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 4)
    context, known = await watch.context(), unhosted.Known()
    for number in range(10):
        await started(watch, 1, kind=f"kind {number}")
    await watch.passed(61)
    assert [await unhosted.sweep(context, known) for _ in range(8)] == [4, 4, 2, 0, 0, 0, 0, 0]
    assert len(watch.found) == 10


async def test_while_there_is_a_page_behind_the_last_one_the_next_round_comes_soon(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", PAGE)
    context = await watch.context(order)
    supervisor = Supervisor(context)
    round, free = await plant_lease_lapsed(watch, context)
    await round()
    assert supervisor._pace(lease_lapsed, lease_lapsed.SECONDS) == limits.SWEEP_PAGE_SECONDS
    while not await free():
        await round()
    assert supervisor._pace(lease_lapsed, lease_lapsed.SECONDS) == lease_lapsed.SECONDS
