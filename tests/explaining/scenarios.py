"""A scenario for each cause: each brings a process to that standstill by real means, on either store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure import Engine, Limits, WorkerOptions, limits, receive, workflow
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.clock import SECOND
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Beat, Hang, Offer, WorkerRow
from perdure.store.base import Store
from perdure.store.failover import Regression
from perdure.store.sealed.codec import AesGcm
from perdure.testing.clock import MovableMachine
from perdure.testing.faults import FaultyStore
from tests.explaining import shop
from tests.explaining.shop import (
    asking,
    faltering,
    family,
    forgetful,
    gated,
    paying,
    queued,
    refused,
    sleeping,
)
from tests.runtime.conftest import Open, lose, until, until_row

Told = tuple[Engine, str]
"""The engine that is asked, and the id of the process."""
KEYS = bytes(range(32)), bytes(range(32, 64))


class Place:
    """Where a scenario plays: engines on one database, and limits that a test makes small."""

    def __init__(self, opened: Open, set: Callable[[Any, str, Any], None]) -> None:
        self.opened = opened
        self.set = set

    async def worker(self, **settings: Any) -> tuple[Engine, FaultyStore]:
        """A worker that hosts the shop."""
        return await self.opened(work=True, **{"workflows": [shop], **settings})

    async def client(self, **settings: Any) -> Engine:
        """A client alone."""
        engine, _ = await self.opened(**settings)
        return engine


Scenario = Callable[[Place], Awaitable[Told]]
SCENARIOS: dict[Diagnosis, Scenario] = {}
"""With engines that work."""


def of(cause: Diagnosis) -> Callable[[Scenario], Scenario]:
    """The scenario of this cause."""

    def put(scenario: Scenario) -> Scenario:
        SCENARIOS[cause] = scenario
        return scenario

    return put


async def host(store: Store, kind: str, code: str) -> None:
    """A live worker that hosts this, as its row says; it takes nothing."""
    offer = Offer(frozenset({(kind, code)})).encode()
    await store.enlist(WorkerRow(id=MovableMachine(seed=7).new_id(), name="elsewhere:1", hosts=offer), 60 * SECOND)


async def at_rest(engine: Engine, id: str, awaiting: str = "") -> Process:
    """Wait until no worker holds the process, and it waits for this."""
    row: Process = await until_row(engine, id, lambda row: row.owner is None and awaiting in (row.awaiting or " "))
    return row


# -- it moves, or waits ------------------------------------------------------------------------------------------------


@of(Diagnosis.ENDED)
async def ended(place: Place) -> Told:
    engine, _ = await place.worker()
    shop.gates["A"].set()
    handle = await engine.start(gated, "A")
    await handle.result()
    return engine, handle.id


@of(Diagnosis.MOVES)
async def moves(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(gated, "A")
    await until(lambda: "A" in shop.gates)
    return engine, handle.id


@of(Diagnosis.WAITS_FOR_TIME)
async def waits_for_time(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(sleeping)
    await at_rest(engine, handle.id, "timer")
    return engine, handle.id


@of(Diagnosis.WAITS_FOR_MESSAGE)
async def waits_for_message(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(asking)
    await at_rest(engine, handle.id, "signal answer")
    return engine, handle.id


@of(Diagnosis.WAITS_FOR_CHILD)
async def waits_for_child(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(family, "asks")
    await at_rest(engine, handle.id, "child asking")
    return engine, handle.id


@of(Diagnosis.RETRYING)
async def retrying(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(faltering, "A")
    await at_rest(engine, handle.id, "step falter")
    return engine, handle.id


# -- no worker takes it ------------------------------------------------------------------------------------------------


@of(Diagnosis.NO_HOST_OF_KIND)
async def no_host_of_kind(place: Place) -> Told:
    client = await place.client()
    ended, _ = await place.worker()
    await ended.close(0)
    await place.worker(workflows=[sleeping])
    return client, (await client.start(asking)).id


@of(Diagnosis.NO_HOST_OF_VERSION)
async def no_host_of_version(place: Place) -> Told:
    @workflow(name="greeting", version="2")
    async def newer() -> str:
        return await receive("name", str)

    @workflow(name="greeting", version="1")
    async def older() -> str:
        return await receive("name", str)

    client = await place.client()
    await place.worker(workflows=[newer])
    return client, (await client.start(older)).id


@of(Diagnosis.QUEUE_NOT_POLLED)
async def queue_not_polled(place: Place) -> Told:
    engine, _ = await place.worker(queues=[])
    return engine, await the_task(engine, "A")


async def the_task(engine: Engine, name: str) -> str:
    """Start a workflow that asks for a queued step; the answer is the step's id."""
    handle = await engine.start(queued, name)
    await at_rest(engine, handle.id, "task at_the_till")
    [task] = await engine.list(where="queue = till")
    return task.id


@of(Diagnosis.QUEUE_BLOCKED)
async def queue_blocked(place: Place) -> Told:
    engine, _ = await place.worker()
    await engine.queues.block("till", who="ana", why="no money")
    return engine, await the_task(engine, "A")


@of(Diagnosis.QUEUE_FULL)
async def queue_full(place: Place) -> Told:
    engine, _ = await place.worker()
    await engine.queues.limit("till", concurrency=1)
    first = await the_task(engine, "A")
    await until_row(engine, first, lambda row: row.owner)
    handle = await engine.start(queued, "B")
    await at_rest(engine, handle.id, "task at_the_till")
    [second] = [task.id for task in await engine.list(where="queue = till") if task.id != first]
    return engine, second


@of(Diagnosis.KIND_FULL)
async def kind_full(place: Place) -> Told:
    engine, _ = await place.worker()
    await engine.kinds.limit("queued", Limits(running=1), who="ana")
    await engine.start(queued, "A")
    second = await engine.start(queued, "B")
    await until(lambda: engine.worker and engine.worker.scheduler.instances)
    return engine, second.id


@of(Diagnosis.HOSTS_BUSY)
async def hosts_busy(place: Place) -> Told:
    place.set(limits, "BUSY_SECONDS", 0.0)
    engine, _ = await place.worker(options=WorkerOptions(in_flight=1))
    await engine.start(gated, "A")
    await until(lambda: "A" in shop.gates)
    client = await place.client()
    return client, (await client.start(gated, "B")).id


@of(Diagnosis.RECOVERY_PAUSED)
async def recovery_paused(place: Place) -> Told:
    client = await place.client()
    await client.recovery.pause(who="ana", why="we look at it")
    engine, store = await place.worker()
    handle = await engine.start(gated, "A")
    await until(lambda: "A" in shop.gates)
    await lose(engine, store)
    return client, handle.id


# -- something is wrong with its worker --------------------------------------------------------------------------------


@of(Diagnosis.CRASHES_ITS_WORKER)
async def crashes_its_worker(place: Place) -> Told:
    """Three workers die while they hold it; each time the next one takes it over."""
    client = await place.client()
    handle = await client.start(gated, "A")
    for deaths in range(1, limits.SUSPECT_DEATHS + 1):
        engine, store = await place.worker()
        await until_row(client, handle.id, lambda row: row.owner)
        await lose(engine, store)
        sweeper, _ = await place.opened(work=True, workflows=[sleeping])
        await until_row(client, handle.id, lambda row: row.deaths == deaths)  # noqa: B023
        await sweeper.close(0)
        await engine.close(0)
    row = await client.row(handle.id)
    await host(client.store, row.kind, row.code)
    return client, handle.id


@of(Diagnosis.HANGS_ITS_WORKER)
async def hangs_its_worker(place: Place) -> Told:
    """What its watchdog writes when code blocks the loop of a worker."""
    engine, store = await place.worker()
    handle = await engine.start(gated, "A")
    row = await until_row(engine, handle.id, lambda row: row.owner)
    await until(lambda: "A" in shop.gates)
    await engine.worker.heartbeat.loop.stop()  # type: ignore[union-attr]
    hang = Hang(row.id, "wait_at_gate", 7.0, "File shop.py, in wait_at_gate")
    await store.beat(Beat(row.owner, (), SECOND, SECOND, hang.encode()))
    return engine, handle.id


@of(Diagnosis.NO_PROGRESS)
async def no_progress(place: Place) -> Told:
    place.set(limits, "NO_PROGRESS_SECONDS", 0.0)
    return await moves(place)


# -- something is wrong with what it needs -----------------------------------------------------------------------------


@of(Diagnosis.DEPENDENCY_DOWN)
async def dependency_down(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(paying, "A")
    await at_rest(engine, handle.id, "breaker bank")
    return engine, handle.id


@of(Diagnosis.RETRIES_SPENT)
async def retries_spent(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(refused, "A")
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    return engine, handle.id


@of(Diagnosis.WAITS_FOR_NOTHING)
async def waits_for_nothing(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(forgetful)
    await at_rest(engine, handle.id, "nothing")
    return engine, handle.id


# -- something is wrong with its records -------------------------------------------------------------------------------


@of(Diagnosis.HISTORY_MISFIT)
async def history_misfit(place: Place) -> Told:
    """New code, under the same version, asks for another step than the old one has done."""
    first, _ = await place.worker(workflows=[named("spoken", shop.refuse_softly)])
    handle = await first.start("spoken")
    await at_rest(first, handle.id, "signal name")
    await first.close(0)
    second, _ = await place.worker(workflows=[named("spoken", shop.nod)])
    await handle_of(second, handle.id).signal("name", "Ann")
    await until_row(second, handle.id, lambda row: row.status is Status.BROKEN)
    return second, handle.id


def named(name: str, do: Any) -> Any:
    """A workflow of that name that does this step, and waits."""

    @workflow(name=name, version="1")
    async def spoken() -> str:
        await do()
        return await receive("name", str)

    return spoken


def handle_of(engine: Engine, id: str) -> Any:
    """The process as that engine knows it."""
    return engine.process(id)


@of(Diagnosis.PAYLOAD_UNREADABLE)
async def payload_unreadable(place: Place) -> Told:
    client = await place.client(codecs=[AesGcm({"old": KEYS[0]})])
    handle = await client.start(gated, "A")
    worker, _ = await place.worker(codecs=[AesGcm({"new": KEYS[1]})])
    await until_row(worker, handle.id, lambda row: row.status is Status.BROKEN)
    return worker, handle.id


# -- it was stopped ----------------------------------------------------------------------------------------------------


@of(Diagnosis.HELD)
async def held(place: Place) -> Told:
    engine, _ = await place.worker()
    handle = await engine.start(asking)
    await at_rest(engine, handle.id)
    await handle.hold(who="ana", why="we ask the customer")
    return engine, handle.id


@of(Diagnosis.SET_BACK)
async def set_back(place: Place) -> Told:
    """A worker finds that the database has forgotten what it was told, and holds what it knows better."""
    engine, store = await place.worker()
    handle = await engine.start(asking)
    row = await at_rest(engine, handle.id, "signal answer")
    text = "it was set back, with the database, from version 3 to version 1"
    store.backend.failover().set_back[row.id] = Regression(text, row.token)
    await until_row(engine, handle.id, lambda row: row.status is Status.HELD)
    return engine, handle.id
