"""A kind that an outage holds while its worker is short of something: neither ends the hold of the other."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Engine, limits
from tests.runtime import test_shortages
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_shortages import done, doors, hangs, hangs_too, left_behind, threaded, unthreaded

FLOWS = [hangs, hangs_too, threaded, unthreaded]
few, _quick = test_shortages.few, test_shortages._quick


async def short_of_threads(engine: Engine) -> None:
    """All threads of this worker are left behind in calls that hang."""
    await left_behind(engine, hangs, 2)
    await left_behind(engine, hangs_too, 1)


async def test_a_shortage_that_ends_does_not_let_go_a_kind_that_an_outage_holds(opened: Open, few: None) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    worker = engine.worker
    assert worker is not None
    await short_of_threads(engine)
    await worker.heartbeat.guard.stop()  # what waits for a thread is handed back after the outage has begun
    waits = await engine.start(threaded, 1)
    await engine.outages.begin("threaded", who="Ann")
    await worker.supervisor.log.look()
    worker.heartbeat.guard.start()
    await until_row(engine, waits.id, lambda row: row.owner is None)
    for door in list(doors.values()):
        door.set()
    await until(lambda: not worker.scheduler.agent.held_up() and not worker.shortages.unserved)
    assert not worker.shortages.serves("threaded"), "the outage lasts"
    client, _ = await opened()
    assert await (await client.start(unthreaded, 7)).result(LIMIT) == 7  # the worker has claimed it
    assert 1 not in done
    await engine.outages.end("threaded", who="Ann")
    assert await waits.result(LIMIT) == 2


async def test_an_outage_that_ends_does_not_have_a_kind_claimed_that_the_worker_cannot_serve(
    opened: Open, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    worker = engine.worker
    assert worker is not None
    await short_of_threads(engine)
    waits = await engine.start(threaded, 1)
    await until(lambda: "threaded" in worker.shortages.unserved)  # it may be stored without an owner first
    await until_row(engine, waits.id, lambda row: row.owner is None)
    await engine.outages.begin("threaded", who="Ann")
    await worker.supervisor.log.look()
    assert worker.outages.holds("threaded")
    await engine.outages.end("threaded", who="Ann")
    await worker.supervisor.log.look()
    assert worker.outages.holds("threaded") and list(worker.outages.offers()) == [], "the few at first wait too"
    monkeypatch.setattr(limits, "OUTAGE_DOUBLED_SECONDS", 0.001)
    async with asyncio.timeout(LIMIT):
        while worker.outages.holds("threaded"):
            await worker.supervisor.log.look()
    assert not worker.shortages.serves("threaded"), "there is still no thread for it"
    for door in list(doors.values()):
        door.set()
    assert await waits.result(LIMIT) == 2
