"""A blocked event loop: it is reported with its stack, and its worker falls silent, as it should (F06)."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.clock import Machine
from perdure.engine import Engine
from perdure.kernel.policy import Retry
from perdure.runtime.pace import Pace
from perdure.runtime.watchdog import Watchdog
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


async def test_f06_a_step_that_blocks_the_loop_is_reported_once_with_its_stack(
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


async def test_f06_while_its_loop_is_blocked_a_worker_does_not_beat_and_others_end_it(sqlite_url: str) -> None:
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
    pace = Pace(lease_seconds=1.0, beat_seconds=0.2)
    async with Engine(sqlite_url, work=True, workflows=[blocker], pace=pace) as engine:
        assert engine.worker is not None
        before = engine.worker.incarnation.id
        handle = await engine.start(blocker)
        assert await handle.result(LIMIT) == "unblocked"
        await until(lambda: engine.worker.incarnation.id != before)  # it was ended, and went on under a new id
    thread.join()
    assert seen == ["silent"]


@workflow
async def quiet() -> None:
    """Something else to host."""


async def test_a_watchdog_that_never_started_can_be_stopped() -> None:
    Watchdog(Machine(), Telemetry()).stop()
