"""Scenarios on a store alone, whose time the test moves and where nobody sweeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from perdure import Engine
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.clock import SECOND
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import Status
from perdure.testing.conformance import Trial
from tests.explaining.scenarios import Told, host

OnTrial = Callable[[Trial], Awaitable[Told]]
TRIALS: dict[Diagnosis, OnTrial] = {}


def tried(cause: Diagnosis) -> Callable[[OnTrial], OnTrial]:
    """The scenario of this cause, on a store alone."""

    def put(scenario: OnTrial) -> OnTrial:
        TRIALS[cause] = scenario
        return scenario

    return put


@tried(Diagnosis.WORKER_LOST)
async def worker_lost(trial: Trial) -> Told:
    """Nobody sweeps here: the worker that would take it over is a row alone."""
    dead = await trial.worker()
    row = await trial.owned(dead)
    await host(trial.store, row.kind, row.code)
    assert await trial.store.retire(dead, None, died=True)
    return on(trial), row.id.hex()


@tried(Diagnosis.OVER_DEADLINE)
async def over_deadline(trial: Trial) -> Told:
    """No worker lives that would end it."""
    row = await trial.started(deadline=await trial.time.now() + 5 * SECOND)
    await trial.time.advance(10)
    return on(trial), row.id.hex()


@tried(Diagnosis.RECORD_UNSOUND)
async def record_unsound(trial: Trial) -> Told:
    """A row that counts more events than its history has."""
    row = await trial.owned(await trial.worker())
    after = replace(row, version=row.version + 1, owner=None, due_at=await trial.time.now() + SECOND, events=9)
    await trial.done(Commit(row.token, row.version, after))
    return on(trial), row.id.hex()


@tried(Diagnosis.NEWER_RECORD)
async def newer_record(trial: Trial) -> Told:
    """Parked by a worker that met an event of a type which it does not know."""
    row = await trial.owned(await trial.worker())
    failure = Failure("NewerRecord", "event 3 is of type 99, which this Perdure does not know").encode()
    after = replace(
        row, version=row.version + 1, token=row.token + 1, owner=None, status=Status.BROKEN, reminder=True, events=1,
        due_at=await trial.time.now() + SECOND, error=failure,
    )  # fmt: skip
    parked = Event(1, 0, EventType.BROKEN, await trial.time.now(), payload=failure)
    await trial.done(Commit(row.token, row.version, after, (parked,)))
    return on(trial), row.id.hex()


@tried(Diagnosis.CLOCK_JUMPED)
async def clock_jumped(trial: Trial) -> Told:
    """It sleeps, and the clock of the store's machine is put back by an hour."""
    worker = await trial.worker()
    row = await trial.owned(worker)
    now = await trial.time.now()
    after = replace(row, version=row.version + 1, owner=None, due_at=now + 60 * SECOND, awaiting="timer")
    await trial.done(Commit(row.token, row.version, after))
    await trial.time.advance(1)
    await trial.beat(worker)
    await trial.time.set_back(3600)
    assert (await trial.beat(worker)).lead
    return on(trial), row.id.hex()


def on(trial: Trial) -> Engine:
    """A client on the store of a trial, which is open."""
    return Engine(trial.store.url, store=trial.store)
