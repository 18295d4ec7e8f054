"""A blocked event loop: it is reported with its stack, and its worker falls silent, as it should."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from types import FrameType

import pytest
from msgspec import json

from perdure import receive
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.kernel.worker import Hang
from perdure.runtime import watchdog as blocker_module
from perdure.runtime.options import WorkerOptions
from perdure.runtime.watchdog import Blocker, Watchdog, Witness
from perdure.telemetry import Telemetry
from tests.runtime.conftest import LIMIT, until

blocking = threading.Event()
watchdogs: list[Watchdog] = []


def block_here() -> None:
    for watchdog in watchdogs:
        watchdog.seconds = 0.1  # not before: a machine that is busy elsewhere blocks a loop for that long too
    assert blocking.wait(LIMIT)


@step(retry=Retry.NONE)
async def blocks() -> str:
    block_here()
    return "unblocked"


@workflow
async def blocker() -> str:
    return await blocks()


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the watchdog has written its report, which also ends the blockade."""
    written = threading.Event()
    blocking.clear()
    plain = Watchdog._report

    def report(self: Watchdog, seconds: float) -> None:
        plain(self, seconds)
        self.seconds = LIMIT
        written.set()
        blocking.set()

    monkeypatch.setattr(Watchdog, "_report", report)
    watchdogs.clear()
    return written


async def test_a_step_that_blocks_the_loop_is_reported_once_with_its_stack(
    sqlite_url: str, report: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(sqlite_url, work=True, workflows=[blocker]) as engine:
        assert engine.worker is not None
        watchdogs.append(engine.worker.watchdog)
        with caplog.at_level(logging.ERROR, logger="perdure"):
            handle = await engine.start(blocker)
            assert await handle.result(LIMIT) == "unblocked"
        assert report.is_set()
        assert engine.metrics()["loops_blocked"] == 1
    [text] = [message for message in caplog.messages if "has been blocked" in message]
    assert "block_here" in text
    assert "Make the blocking call a sync step" in text


async def test_while_its_loop_is_blocked_a_worker_does_not_beat_and_others_end_it(sqlite_url: str) -> None:
    """The other worker has an event loop in a thread of its own: it sees the first one fall silent."""
    ready, seen = threading.Event(), []

    async def watch() -> None:
        async with Engine(sqlite_url, work=True, workflows=[quiet]) as engine:
            ready.set()
            await until(lambda: engine.metrics().get("workers_silent"))
            seen.append("silent")
        blocking.set()

    blocking.clear()
    thread = threading.Thread(target=lambda: asyncio.run(watch()))
    thread.start()
    await until(ready.is_set)
    options = WorkerOptions(lease_seconds=1.0, beat_seconds=0.2)
    async with Engine(sqlite_url, work=True, workflows=[blocker], options=options) as engine:
        assert engine.worker is not None
        before = engine.worker.incarnation.id
        handle = await engine.start(blocker)
        assert await handle.result(LIMIT) == "unblocked"
        await until(lambda: engine.worker.incarnation.id != before)  # it was ended, and went on under a new id
    thread.join()
    assert seen == ["silent"]


async def test_an_embedded_worker_that_hung_drops_all_that_it_held_and_only_the_one_that_hung_it_is_counted(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The blockade ends when the watchdog has given the lease up: nobody else was there to notice."""
    plain = Watchdog._end

    def end(self: Watchdog, by: Blocker, evidence: Hang | None) -> None:
        plain(self, by, evidence)
        blocking.set()

    monkeypatch.setattr(Watchdog, "_end", end)
    watchdogs.clear()
    blocking.clear()
    options = WorkerOptions(lease_seconds=1.0, beat_seconds=0.2)
    async with Engine(store_url, work=True, workflows=[blocker, waiter], options=options) as engine:
        assert engine.worker is not None
        before = engine.worker.incarnation.id
        neighbour = await engine.start(waiter)
        handle = await engine.start(blocker)
        assert await handle.result(LIMIT) == "unblocked"
        await until(lambda: engine.worker.incarnation.id != before)  # type: ignore[union-attr]
        assert engine.metrics()["loops_hung"] == 1
        deaths = {}
        for one in (handle, neighbour):
            row = await engine.row(one.id)
            revived = await engine.store.history(row.id, row.run, types=[EventType.REVIVED])
            deaths[one] = [json.decode(event.payload or b"").get("deaths", 0) for event in revived]
        assert deaths == {handle: [1], neighbour: [0]}
    [text] = [message for message in caplog.messages if "is hung" in message]
    assert "by step blocks:1" in text and "block_here" in text and "drops all that it holds" in text


@step(retry=Retry.NONE)
async def wait_for_the_end_of_it() -> None:
    while not blocking.is_set():
        await asyncio.sleep(0.01)


@workflow
async def waiter() -> None:
    await wait_for_the_end_of_it()
    await receive("never")


@workflow
async def quiet() -> None:
    """Something else to host."""


async def test_a_watchdog_that_never_started_can_be_stopped() -> None:
    engine = Engine("sqlite://:memory:", work=True, workflows=[quiet])
    async with engine:
        assert engine.worker is not None
        heartbeat = engine.worker.heartbeat
    Watchdog(heartbeat, Witness("sqlite://:memory:", Computer()), Computer(), Telemetry()).stop()


def test_a_callback_that_has_just_ended_blocks_nothing_though_its_frame_is_still_there() -> None:
    found = []

    def each(frame: FrameType, event: str, arg: object) -> object:
        if event == "return" and frame.f_code is asyncio.Handle._run.__code__:
            found.append((frame.f_locals["self"], blocker_module._attempt_run(frame)))
        return each

    loop = asyncio.new_event_loop()
    handle = loop.call_soon(lambda: None)
    before = sys.gettrace()
    sys.settrace(each)
    try:
        handle._run()
    finally:
        sys.settrace(before)
        loop.close()
    assert found == [(None, None)]
