"""Each sweep frees what is stuck in its own way, and leaves alone what is not; on both stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from perdure.authoring.registry import Registry
from perdure.authoring.workflow import workflow
from perdure.clock import SECOND
from perdure.kernel.commit import Verdict
from perdure.kernel.event import EventType
from perdure.kernel.finding import Finding
from perdure.kernel.process import Process, Status
from perdure.kernel.soundness import unsound
from perdure.runtime.committer import Committer
from perdure.runtime.incarnation import Incarnation
from perdure.runtime.store_time import StoreTime
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps import (
    finished_long_ago,
    lease_lapsed,
    nobody_hosts,
    owner_gone,
    process_idle,
    process_overdue,
    record_unsound,
    worker_silent,
)
from perdure.runtime.ward import Ward
from perdure.store.base import Store
from perdure.store.open import store_for
from perdure.telemetry import Telemetry
from perdure.testing.clock import NOON, MachineTime, MovableMachine, Time
from perdure.testing.conformance.trial import LEASE, SILENCE, Trial, finished, going_on, released, resting
from perdure.testing.postgres_clock import DatabaseTime

DAY = 24 * 3600.0
LIMIT = 20.0


@workflow(name="order", version="1")
async def order() -> None:
    """The kind that the suite's rows are of."""


class Field:
    """One database for one test, with its time in the test's hand."""

    shared = lasting = True
    locks_rows = False

    def __init__(self, time: Time) -> None:
        self.time = time


class Round:
    """A trial with a ward: what a supervisor's sweeps are given, and time that passes for all of it."""

    def __init__(self, store: Store, machine: MovableMachine, time: Time) -> None:
        self.trial = Trial(Field(time), store, machine)  # type: ignore[arg-type]
        self.store = store
        self.machine = machine
        self.found: list[Finding] = []
        self.wards: list[Ward] = []

    async def ward(self, *hosted: object) -> Ward:
        """The ward of one more worker."""
        telemetry = Telemetry()
        committer = Committer(self.store, self.machine, telemetry)
        committer.open()
        time = StoreTime(self.machine)
        time.heard(await self.store.now(), self.machine.monotonic())
        incarnation = Incarnation(await self.trial.worker("supervising"))
        ward = Ward(
            incarnation, self.store, Registry(*hosted), committer, time, self.machine, telemetry,
            retention=DAY, key_retention=DAY,
        )  # fmt: skip
        ward.found = self.found.append
        self.wards.append(ward)
        return ward

    async def passed(self, seconds: float) -> None:
        """Let time pass, for the store and for every worker."""
        now = await self.trial.time.advance(seconds)
        if self.machine.now() < now:
            self.machine.advance(seconds)
        for ward in self.wards:
            ward.time.heard(now, self.machine.monotonic())

    async def sound(self, process: Process) -> Process:
        """The row as it is now, after a check that its record breaks no law."""
        whole = await self.trial.whole(process.id)
        assert unsound(whole.process, whole.events, whole.messages, await self.store.now()) == []
        return whole.process


@pytest.fixture
async def watch(store_url: str) -> AsyncIterator[Round]:
    """A round on each store in turn, at noon of the tests' day."""
    machine = MovableMachine()
    store = store_for(store_url, machine)
    await store.open()
    time: Time = MachineTime(machine)
    if store_url.startswith("postgresql"):
        time = DatabaseTime(store_url)
        await time.freeze(NOON)
    made = Round(store, machine, time)
    yield made
    for ward in made.wards:
        await ward.committer.close()
    await store.close()


async def test_a_silent_worker_is_ended_and_what_it_held_is_due_now(watch: Round) -> None:
    ward = await watch.ward()
    silent = await watch.trial.worker("silent")
    row = await watch.trial.in_hand(silent)
    assert await worker_silent.sweep(ward) == 0
    await watch.passed(SILENCE / SECOND + 1)
    assert await worker_silent.sweep(ward) == 1
    freed = await watch.sound(row)
    assert (freed.owner, freed.token, freed.due_at) == (None, row.token + 1, await watch.store.now())
    assert ward.telemetry.counters["orphans_freed"] == 1
    assert await worker_silent.sweep(ward) == 0


async def test_rule_13_silence_is_no_evidence_of_a_death(watch: Round) -> None:
    ward = await watch.ward()
    row = await watch.trial.in_hand(await watch.trial.worker("silent"))
    await watch.passed(SILENCE / SECOND + 1)
    await worker_silent.sweep(ward)
    assert (await watch.sound(row)).deaths == 0


async def test_a_worker_that_beats_is_not_ended_by_others(watch: Round) -> None:
    ward = await watch.ward()
    alive = await watch.trial.worker("alive")
    await watch.passed(SILENCE / SECOND - 1)
    await watch.trial.beat(alive)
    await watch.passed(2)
    assert await worker_silent.sweep(ward) == 0


async def test_what_a_dead_worker_held_is_freed_and_its_death_counted_once(watch: Round) -> None:
    one, two = await watch.ward(), await watch.ward()
    dead = await watch.trial.worker("dead")
    rows = [await watch.trial.in_hand(dead) for _ in range(3)]
    await watch.store.retire(dead, None, True)
    two.time.heard(
        await watch.store.now() + 1, watch.machine.monotonic()
    )  # no two workers look at the same microsecond
    assert sum(await asyncio.gather(owner_gone.sweep(one), owner_gone.sweep(two))) == 3
    for row in rows:
        freed = await watch.sound(row)
        assert (freed.owner, freed.deaths, freed.status) == (None, 1, Status.RUNNING)
        events = await watch.store.history(row.id, 1)
        assert [event.type for event in events] == [EventType.REVIVED]


async def test_the_late_answer_of_a_worker_that_was_swept_is_refused(watch: Round) -> None:
    ward = await watch.ward()
    paused = await watch.trial.worker("paused")
    row = await watch.trial.in_hand(paused)
    await watch.passed(SILENCE / SECOND + 1)
    await worker_silent.sweep(ward)
    assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert not (await watch.trial.beat(paused, row)).alive


async def test_a_lapsed_lease_of_a_kind_not_hosted_here_is_freed(watch: Round) -> None:
    ward = await watch.ward()
    owner = await watch.trial.worker()
    row = await watch.trial.in_hand(owner)
    assert await lease_lapsed.sweep(ward) == 0
    await watch.passed(LEASE / SECOND + 1)
    assert await lease_lapsed.sweep(ward) == 1
    freed = await watch.sound(row)
    assert (freed.owner, freed.token, freed.deaths) == (None, row.token + 1, 0)


async def test_a_lapsed_lease_of_a_hosted_kind_is_left_to_the_claim(watch: Round) -> None:
    ward = await watch.ward(order)
    row = await watch.trial.in_hand(await watch.trial.worker())
    await watch.passed(LEASE / SECOND + 1)
    assert await lease_lapsed.sweep(ward) == 0
    [taken] = (await watch.trial.claim(ward.incarnation.id)).claimed
    assert (taken.process.id, taken.was_owned_by) == (row.id, row.owner)


async def test_an_owned_process_past_its_deadline_ends_as_failed(watch: Round) -> None:
    ward = await watch.ward(order)
    deadline = await watch.store.now() + 5 * SECOND
    row = await watch.trial.in_hand(await watch.trial.worker(), deadline=deadline)
    assert await process_overdue.sweep(ward) == 0
    await watch.passed(6)
    assert await process_overdue.sweep(ward) == 1
    assert (await watch.sound(row)).status is Status.FAILED
    assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED


@pytest.mark.parametrize("status", [Status.HELD, Status.BROKEN])
async def test_somebody_is_reminded_of_a_process_that_waits_for_a_person(
    watch: Round, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    ward = await watch.ward(order)
    row = await watch.trial.in_hand(await watch.trial.worker())
    due_at = await watch.store.now() + 5 * SECOND
    await watch.trial.done(resting(row, due_at, status, error=b'{"type":"X","message":"why"}'))
    assert await process_idle.sweep(ward) == 0
    await watch.passed(6)
    with caplog.at_level(logging.WARNING, logger="perdure"):
        assert await process_idle.sweep(ward) == 1
    assert "waits for a person" in caplog.text
    after = await watch.trial.row(row.id)
    assert (after.status, after.reminder, after.due_at is not None and after.due_at > due_at) == (status, True, True)
    assert await process_idle.sweep(ward) == 0


async def test_rule_9_an_idle_process_is_looked_at_without_a_turn(watch: Round) -> None:
    ward = await watch.ward(order)
    row = await watch.trial.in_hand(await watch.trial.worker())
    rested = await watch.trial.done(resting(row, await watch.store.now() + SECOND))
    await watch.passed(2)
    assert (await watch.trial.claim(ward.incarnation.id)).claimed == ()
    assert await process_idle.sweep(ward) == 1
    after = await watch.sound(row)
    assert (after.token, after.events, after.owner) == (rested.token, rested.events, None)


async def test_processes_that_nobody_hosts_are_reported_by_kind_and_not_touched(watch: Round) -> None:
    ward = await watch.ward()
    rows = [await watch.trial.started(kind="forgotten") for _ in range(2)]
    assert await nobody_hosts.sweep(ward) == 0
    await watch.passed(61)
    assert await nobody_hosts.sweep(ward) == 2
    [finding] = watch.found
    assert "2 processes of kind 'forgotten'" in finding.text
    assert [await watch.sound(row) for row in rows] == rows


async def test_what_finished_long_ago_is_removed_and_what_finished_lately_is_kept(watch: Round) -> None:
    ward = await watch.ward()
    owner = await watch.trial.worker()
    old = await watch.trial.in_hand(owner)
    await watch.trial.done(finished(old))
    await watch.passed(DAY)
    new = await watch.trial.in_hand(await watch.trial.worker())
    await watch.trial.done(finished(new))
    await watch.passed(1)
    assert await finished_long_ago.sweep(ward) == 1
    assert [row.id for row in await watch.trial.stored()] == [new.id]


async def test_a_record_that_breaks_a_law_is_reported_under_its_name(watch: Round) -> None:
    ward = await watch.ward()
    owner = await watch.trial.worker()
    place = record_unsound.Place()
    sound = await watch.trial.in_hand(owner)
    assert await record_unsound.sweep(ward, place) == 0
    row = await watch.trial.in_hand(owner)
    commit = released(row, await watch.store.now() + SECOND)
    await watch.trial.done(replace(commit, after=replace(commit.after, events=9)))
    assert await record_unsound.sweep(ward, place) > 0
    assert {finding.subject for finding in watch.found} == {row.id} != {sound.id}
    assert "history_is_gapless" in {finding.law for finding in watch.found}


async def test_what_a_supervisor_finds_is_counted_under_the_name_of_its_sweep(watch: Round) -> None:
    ward = await watch.ward()
    await watch.trial.in_hand(await watch.trial.worker("silent"))
    await watch.passed(SILENCE / SECOND + 1)
    supervisor = Supervisor(ward)
    supervisor.start()
    async with asyncio.timeout(LIMIT):
        while not ward.telemetry.counters["workers_silent"]:
            await asyncio.sleep(0)
    await supervisor.stop()
    assert ward.telemetry.counters["workers_silent"] == 1
