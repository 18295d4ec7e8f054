"""Stuck: a worker is killed. Its lock is free at two looks with no beat between: it is ended, its rows are free."""

from __future__ import annotations

import asyncio
import math

import pytest

from perdure import limits
from perdure.kernel.commit import Verdict
from perdure.kernel.worker import WorkerRow
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps import owner_gone, worker_dead
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Store
from perdure.testing.conformance.trial import SILENCE, Trial, going_on
from tests.sweeps.watch import LIMIT, Watch


class Victim:
    """A worker with a store of its own: when that is closed, the system frees its lock as if it had been killed."""

    def __init__(self, watch: Watch, store: Store) -> None:
        self.watch = watch
        self.store = store
        self.trial = Trial(watch.ground, store, watch.machine)
        self.id = b""

    async def enlist(self) -> WorkerRow:
        """Enlist, as a worker does at its start."""
        self.id = self.watch.machine.new_id()
        return await self.store.enlist(WorkerRow(self.id, "victim"), SILENCE)

    async def die(self) -> None:
        """Be killed; the server of PostgreSQL takes a moment to see it."""
        await self.store.close()
        async with asyncio.timeout(LIMIT):
            while not any(one.id == self.id and one.lock_free for one in await self.watch.store.workers()):
                await asyncio.sleep(0.001)


async def victim(watch: Watch) -> Victim:
    """A victim that is still alive."""
    store = watch.ground.store()
    await store.open()
    made = Victim(watch, store)
    assert (await made.enlist()).locked, "its lock counts"
    return made


async def test_rule_12_a_free_lock_at_two_looks_is_a_death_and_at_one_look_is_not(watch: Watch) -> None:
    context, dead = await watch.context(), await victim(watch)
    looks = worker_dead.Looks()
    rows = [await dead.trial.owned(dead.id) for _ in range(3)]
    assert [await worker_dead.sweep(context, looks) for _ in range(2)] == [0, 0]
    await dead.die()
    assert await worker_dead.sweep(context, looks) == 0
    assert await worker_dead.sweep(context, looks) == 1
    for row in rows:
        freed = await watch.sound(row)
        assert (freed.owner, freed.deaths, freed.due_at) == (None, 1, await watch.store.now())
        assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert context.telemetry.counters[owner_gone.COUNTER] == 3
    assert await worker_dead.sweep(context, looks) == 0


async def test_rule_12_a_beat_between_the_looks_proves_life(watch: Watch) -> None:
    context, dark = await watch.context(), await victim(watch)
    looks = worker_dead.Looks()
    await dark.die()
    for _ in range(3):
        assert await worker_dead.sweep(context, looks) == 0
        assert (await watch.trial.beat(dark.id)).alive


async def test_rule_12_whoever_has_no_lock_is_never_found_dead(watch: Watch) -> None:
    context = await watch.context()
    looks = worker_dead.Looks()
    before = await watch.store.workers()
    assert [await worker_dead.sweep(context, looks) for _ in range(3)] == [0, 0, 0]
    assert [worker.id for worker in await watch.store.workers()] == [worker.id for worker in before]


async def test_all_that_a_dead_worker_held_is_freed_batch_after_batch(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context, dead = await watch.context(), await victim(watch)
    looks = worker_dead.Looks()
    for _ in range(5):
        await dead.trial.owned(dead.id)
    neighbour = await watch.trial.owned(await watch.trial.worker("alive"))
    await dead.die()
    assert [await worker_dead.sweep(context, looks) for _ in range(2)] == [0, 1]
    assert context.telemetry.counters[owner_gone.COUNTER] == 5
    assert await watch.untouched([neighbour])


async def test_two_supervisors_at_once_count_a_death_once(watch: Watch) -> None:
    dead = await victim(watch)
    row = await dead.trial.owned(dead.id)
    await dead.die()
    looks: dict[SweepContext, worker_dead.Looks] = {}

    async def sweep(context: SweepContext) -> int:
        mine = looks.setdefault(context, worker_dead.Looks())
        return await worker_dead.sweep(context, mine) + await worker_dead.sweep(context, mine)

    assert sum(await watch.at_once(sweep, "retire")) == 1
    assert (await watch.sound(row)).deaths == 1


async def test_rule_12_the_grace_begins_anew_when_our_own_connection_came_back(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, dead = await watch.context(), await victim(watch)
    supervisor = Supervisor(context)
    await dead.die()
    came_back = math.inf  # it is still lost
    monkeypatch.setattr(type(watch.store.backend), "standing_since", property(lambda backend: came_back))
    assert [await supervisor.probe() for _ in range(3)] == [0, 0, 0]
    came_back = watch.machine.monotonic()
    assert [await supervisor.probe() for _ in range(3)] == [0, 0, 0]
    await watch.passed(limits.PROBE_GRACE_SECONDS + 0.1)
    assert [await supervisor.probe() for _ in range(2)] == [0, 1]


async def test_rule_12_in_the_grace_a_worker_that_was_seen_to_hold_its_lock_is_found_dead_at_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, unseen, seen = await watch.context(), await victim(watch), await victim(watch)
    supervisor = Supervisor(context)
    began = watch.machine.monotonic()
    monkeypatch.setattr(type(watch.store.backend), "standing_since", property(lambda backend: began))
    await unseen.die()  # it may have lost its session with those of all, and come back later
    assert await supervisor.probe() == 0
    await seen.die()
    assert [await supervisor.probe() for _ in range(3)] == [0, 1, 0]
    assert [worker.id for worker in await watch.store.workers() if worker.lock_free] == [unseen.id]


async def test_rule_12_a_lock_that_was_seen_before_our_own_session_was_lost_tells_nothing(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, other = await watch.context(), await victim(watch)
    supervisor = Supervisor(context)
    came_back = watch.machine.monotonic()
    monkeypatch.setattr(type(watch.store.backend), "standing_since", property(lambda backend: came_back))
    assert await supervisor.probe() == 0
    await other.die()  # as when the server restarts: its session is lost, and ours
    await watch.passed(0.1)
    came_back = watch.machine.monotonic()
    assert [await supervisor.probe() for _ in range(3)] == [0, 0, 0]


async def test_after_a_store_error_the_next_round_finds_the_dead_again(watch: Watch) -> None:
    context, dead = await watch.context(), await victim(watch)
    looks = worker_dead.Looks()
    row = await dead.trial.owned(dead.id)
    await dead.die()
    await worker_dead.sweep(context, looks)

    async def sweep(context: SweepContext) -> int:
        return await worker_dead.sweep(context, looks)

    assert await watch.after_an_outage(context, sweep, "retire") == 1
    assert (await watch.sound(row)).owner is None
