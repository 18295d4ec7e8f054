"""Suspects of a queue that is always full: a quarantine worker waits with them for a place, and gets one."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.client.handle import Handle
from perdure.clock import Computer, Linked
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.runtime import claimer
from perdure.runtime.options import WorkerOptions
from perdure.runtime.quarantine import Quarantine
from perdure.store.base import Search
from perdure.telemetry import Telemetry
from tests.runtime.conftest import LIMIT, Open, until
from tests.runtime.test_damaged_rows import damage

begun: list[str] = []
gates: dict[int, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    begun.clear()
    gates.clear()


@step(queue="till", retry=Retry.NONE)
async def serve(name: str) -> int:
    begun.append(name)
    if name == "loud":
        await gates[begun.count("loud")].wait()
    return os.getpid()


@workflow
async def customer(name: str, wishes: int) -> list[int]:
    return await asyncio.gather(*(serve.options(share=name)(name) for _ in range(wishes)))


async def waiting(engine: Engine, number: int) -> list[str]:
    """So many tasks that wait at the till."""
    async with asyncio.timeout(LIMIT):
        while len(found := await engine.list(Search(kind="@till"))) < number:
            await asyncio.sleep(0)
    return [task.id for task in found]


async def crowded(opened: Open, url: str, wishes: int) -> tuple[Engine, Handle[list[int]]]:
    """A till with one place, a suspect that waits there, and so many tasks of others; nobody serves it yet."""
    engine, _ = await opened(work=True, workflows=[customer], queues=[])
    await engine.queues.limit("till", concurrency=1)
    shy = await engine.start(customer, "shy", 1)
    [suspect] = await waiting(engine, 1)
    assert await damage(url, suspect, "process", "deaths: 2")
    await engine.start(customer, "loud", wishes)
    await waiting(engine, 1 + wishes)
    return engine, shy


async def test_a_suspect_of_a_queue_that_is_never_empty_gets_a_quarantine_worker_and_a_place(
    opened: Open, store_url: str
) -> None:
    engine, shy = await crowded(opened, store_url, 90)
    server, _ = await opened(work=True, workflows=[customer], queues=["till"])
    await until(lambda: begun == ["loud"] and server.telemetry.counters["suspects_alone"])
    async with asyncio.timeout(LIMIT):
        while len(await engine.store.workers()) < 3:
            await asyncio.sleep(0)
    served = asyncio.create_task(shy.result(LIMIT))
    while not served.done():
        number = len(begun)
        gates[number].set()
        await until(lambda number=number: len(begun) > number or served.done())
    assert await served != [os.getpid()], "it runs in an OS process of its own"
    assert len(begun) < 90, "before all others have been served"


async def test_a_quarantine_worker_does_not_end_while_a_suspect_waits_for_a_place(opened: Open, store_url: str) -> None:
    _, shy = await crowded(opened, store_url, 1)
    server, _ = await opened(work=True, workflows=[customer], queues=["till"])
    assert server.worker is not None
    server.worker.quarantine.wanted = lambda due, waiting: None
    await until(lambda: begun == ["loud"])
    quarantine, _ = await opened(work=True, workflows=[customer], queues=["till"], alone=True)
    worker = quarantine.worker
    assert worker is not None
    await until(lambda: worker.claimer.suspects_waiting)
    idle = asyncio.create_task(worker.until_idle(0.001))
    gates[1].set()
    await idle
    assert begun == ["loud", "shy"]
    assert await shy.result(LIMIT) == [os.getpid()]


async def test_whoever_has_begun_something_of_a_queue_leaves_the_next_free_place_to_a_suspect(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shy = await crowded(opened, store_url, 2)
    server, _ = await opened(work=True, workflows=[customer], queues=["till"])
    assert server.worker is not None
    server.worker.quarantine.wanted = lambda due, waiting: None
    await until(lambda: begun == ["loud"])
    monkeypatch.setattr(limits, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(claimer, "SOON_SECONDS", 3600.0)
    quarantine, store = await opened(work=True, workflows=[customer], queues=["till"], alone=True)
    worker = quarantine.worker
    assert worker is not None
    await until(lambda: worker.claimer.suspects_waiting)
    others, held = server.worker.claimer, asyncio.Event()

    async def wait(name: str, _: Any) -> None:
        if name == "claim":
            await held.wait()

    store.before = wait  # the suspect's worker is the slower one
    await until(lambda: others._gives_way)
    gates[1].set()
    await until(lambda: not others._gives_way or len(begun) > 1)  # told of the place
    assert begun == ["loud"], "the other worker has left the place to the suspect"
    held.set()
    assert await shy.result(LIMIT) == [os.getpid()]
    await until(lambda: begun == ["loud", "shy", "loud"])
    gates[2].set()


class Lasting:
    """A quarantine worker that runs until it is killed."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    def terminate(self) -> None:
        self.kill()

    def kill(self) -> None:
        self.returncode = 0
        self.ended.set()

    async def wait(self) -> int:
        await self.ended.wait()
        return 0


class Nursery(Computer):
    """A machine that counts its children."""

    def __init__(self) -> None:
        self.children: list[Lasting] = []

    async def spawn(self, command: object, environment: object) -> Lasting:
        self.children.append(Lasting())
        return self.children[-1]


class Slow(Computer):
    """A machine whose children take long to come up."""

    def __init__(self) -> None:
        self.lines: list[socket.socket] = []

    async def spawn(self, command: object, environment: object) -> Linked:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.lines.append(theirs)
        return Linked(await asyncio.create_subprocess_exec("sleep", "60"), ours)


async def test_a_quarantine_worker_that_is_not_up_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is too busy to start it, one suspect would otherwise get all workers that there may be."""
    monkeypatch.setattr(limits, "QUARANTINE_SPACING_SECONDS", 0.0)
    monkeypatch.setattr(limits, "QUARANTINE_TRIAL_SECONDS", 0.0)
    machine = Slow()
    quarantine = Quarantine("sqlite://:memory:", Registry(), WorkerOptions(), machine, Telemetry())
    for most in (1, 2, 2, 2):
        quarantine.wanted(True)
        await quarantine._tick()
        assert len(machine.lines) == most
    machine.lines[0].send(b".")
    await until(lambda: quarantine._until_a_place() == 0)
    await quarantine._tick()
    assert len(machine.lines) == 3, "the first is up, and has a suspect by now"
    await quarantine.stop(asyncio.Event())
    for line in machine.lines:
        line.close()


async def test_no_more_than_a_few_quarantine_workers_wait_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUARANTINE_SPACING_SECONDS", 0.0)
    monkeypatch.setattr(limits, "QUARANTINE_TRIAL_SECONDS", 0.0)
    machine = Nursery()
    quarantine = Quarantine("sqlite://:memory:", Registry(), WorkerOptions(), machine, Telemetry())
    for due, most in ((False, 1), (False, 2), (False, 2), (True, 3), (False, 3)):
        quarantine.wanted(due, waiting=True)
        await quarantine._tick()
        await asyncio.sleep(0)  # it is up
        assert len(machine.children) == most, "only for what may run at once there are more"
    await quarantine.stop(asyncio.Event())
