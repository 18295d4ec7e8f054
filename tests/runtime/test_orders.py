"""What people have ordered survives a restart of everything, and each recovery says who it was (rows 97 and 98)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import json

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import ProcessCancelled
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.kernel.transition import orphaned
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open, until, until_row

failing: set[str] = set()
gates: dict[str, asyncio.Event] = {}
begun: list[str] = []


@step(retry=Retry.NONE)
async def act(name: str) -> str:
    begun.append(name)
    if name in gates:
        await gates[name].wait()
    if name in failing:
        raise ConnectionError(name)
    return name


@workflow
async def errand(name: str) -> str:
    await act(name)
    return str(await receive("on"))


def told(event: Event) -> dict[str, Any]:
    """What an event says."""
    said: dict[str, Any] = json.decode(event.payload or b"{}")
    return said


async def test_what_was_ordered_while_no_worker_was_there_is_carried_out_by_the_first_one_that_comes(
    opened: Open,
) -> None:
    client, _ = await opened(workflows=[errand])
    ids = {}
    for name in ("cancel", "hold", "terminate", "signal", "restart"):
        ids[name] = (await client.start(errand, name)).id
    await client.process(ids["cancel"]).cancel(who="Ann", why="a wish")
    await client.process(ids["hold"]).hold(who="Ann")
    await client.process(ids["terminate"]).terminate(who="Ann")
    await client.process(ids["signal"]).signal("on", 7, who="Ann")
    await client.process(ids["restart"]).restart(who="Ann")
    await client.close(0)
    engine, _ = await opened(work=True, workflows=[errand])  # nothing of the one before is left but the database
    with pytest.raises(ProcessCancelled):
        await engine.process(ids["cancel"]).result(timeout=LIMIT)
    assert await engine.process(ids["signal"]).result(timeout=LIMIT) == "7"
    await until_row(engine, ids["restart"], lambda row: row.run == 2 and row.events > 1)
    rows = {name: await engine.row(id) for name, id in ids.items()}
    assert (rows["hold"].status, rows["terminate"].status) == (Status.HELD, Status.CANCELLED)
    for name, type in (
        ("hold", EventType.HELD), ("terminate", EventType.TERMINATED), ("restart", EventType.RUN_OPENED)
    ):  # fmt: skip
        [event] = [event for event in await engine.process(ids[name]).history() if event.type is type]
        sender = told(event).get("sender", told(event))
        assert (sender["who"], sender["origin"]) == ("Ann", "client"), name
    [letter] = await engine.store.messages([(rows["cancel"].id, 0)])
    assert json.decode(letter.sender or b"{}") == {"who": "Ann", "why": "a wish", "origin": "client"}


async def test_a_revival_says_that_it_was_automatic_and_a_retry_who_it_was(opened: Open) -> None:
    failing.add("x")
    engine, _ = await opened(work=True, workflows=[errand])
    handle = await engine.start(errand, "x")
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    failing.clear()
    await engine.process(handle.id).retry(who="Ann", why="it is mended", origin="cli")
    row = await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting == "signal on")
    [opening] = [event for event in await engine.process(handle.id).history() if event.type is EventType.RUN_OPENED]
    assert told(opening)["sender"] == {"who": "Ann", "why": "it is mended", "origin": "cli"}
    now = await engine.store.now()
    async with asyncio.timeout(LIMIT):
        await engine.store.commit([orphaned(row, now=now, died=True, worker="w", idle_at=now)])
    [revived] = [event for event in await engine.process(handle.id).history() if event.type is EventType.REVIVED]
    assert told(revived)["origin"] == "automatic"
    await handle.signal("on", 1)
    assert await handle.result(LIMIT) == "1"


async def test_a_claim_of_a_lapsed_lease_says_which_worker_took_the_process_over(opened: Open) -> None:
    begun.clear()
    gates["x"] = asyncio.Event()
    brief = WorkerOptions(lease_seconds=0.4, beat_seconds=0.1)
    first, _ = await opened(work=True, workflows=[errand], options=brief)
    handle = await first.start(errand, "x")
    await until(lambda: begun == ["x"])
    assert first.worker is not None
    await first.worker.claimer.loop.stop()
    for instance in list(first.worker.scheduler.instances.values()):
        first.worker.scheduler.drop(instance)  # its worker lives, and renews the lease no more
    gates.clear()
    second, _ = await opened(work=True, workflows=[errand])
    await until(lambda: begun == ["x", "x"])
    await until_row(second, handle.id, lambda row: row.awaiting == "signal on")
    [revived] = [event for event in await second.process(handle.id).history() if event.type is EventType.REVIVED]
    evidence = told(revived)
    assert (evidence["lease"], evidence["origin"], evidence["sweep"]) == ("lapsed", "automatic", "claim")
    assert evidence["by"] == second.machine.name()
    assert second.metrics()["processes_revived"] == second.metrics()["takeovers"] == 1
