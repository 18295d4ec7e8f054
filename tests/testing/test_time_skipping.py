"""Time skips by itself while a test waits and nothing runs, and never otherwise."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import ProcessFailed, Status, testing
from perdure.errors import InvalidInput, PerdureError
from perdure.kernel.process import Process
from perdure.store.base import Search
from perdure.testing.time_skipping import STUCK_SECONDS
from tests.testing.bakery import (
    DAY,
    HOUR,
    bake,
    charge,
    counter,
    delivery,
    family,
    forgotten,
    kitchen,
    purchase,
    rest,
    watch,
    week,
)

MONDAY = datetime(2026, 6, 1, 8, tzinfo=UTC)


async def test_a_timer_of_three_days_is_over_in_a_moment() -> None:
    async with testing.engine() as engine:
        began = engine.now()
        handle = await engine.start(delivery, "A-1")
        assert await handle.result(timeout=10) == "dear A-1"
        assert timedelta(days=3) <= engine.now() - began < timedelta(days=3, minutes=1)


async def test_a_signal_is_in_time_though_nothing_else_is_due_for_days() -> None:
    async with testing.engine() as engine:
        for number in range(50):
            handle = await engine.start(delivery, f"A-{number}")
            waiting = asyncio.create_task(handle.result(timeout=10))
            await handle.signal("delivered")
            assert await waiting == "delivered"


async def test_no_time_is_skipped_while_the_test_waits_for_something_else() -> None:
    async with testing.engine() as engine:
        began = engine.now()
        handle = await engine.start(delivery, "A-1")
        await asyncio.to_thread(threading.Event().wait, 0.05)
        assert (await handle.status()).status is Status.RUNNING
        assert engine.now() - began < timedelta(minutes=1)
        await handle.signal("delivered")
        assert await handle.result(timeout=10) == "delivered"


class Oven:
    """A fake of a step that goes on until it is let go, in a thread or on the event loop."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def in_a_thread(self, order: str, cents: int) -> str:
        self.done.wait(30)
        return "from a thread"

    async def on_the_loop(self, order: str, cents: int) -> str:
        while not self.done.is_set():
            await asyncio.sleep(0.001)
        return "from the loop"


@pytest.mark.parametrize("kind", ["in_a_thread", "on_the_loop"])
async def test_no_time_is_skipped_while_a_step_runs(kind: str) -> None:
    oven = Oven()
    async with testing.engine(steps={charge: getattr(oven, kind)}) as engine:
        began = engine.now()
        asleep = await engine.start(rest, HOUR)
        busy = await engine.start(purchase, "A-1", 5)
        with pytest.raises(TimeoutError):
            await asleep.result(timeout=0.1)
        assert engine.now() - began < timedelta(minutes=1)
        oven.done.set()
        await busy.result(timeout=10)
        assert engine.now() - began < timedelta(minutes=1)
        await asleep.result(timeout=10)
        assert engine.now() - began >= timedelta(hours=1)


async def test_the_waits_before_retries_are_skipped() -> None:
    tried: list[datetime] = []

    def flaky(order: str, cents: int) -> str:
        tried.append(engine.now())
        if len(tried) < 3:
            raise OSError("the bank is away")
        return "paid"

    async with testing.engine(steps={charge: flaky}) as engine:
        assert await (await engine.start(purchase, "A-1", 5)).result(timeout=10) == "paid"
    assert [round((later - tried[0]) / timedelta(hours=1), 2) for later in tried] == [0, 1, 2]


async def test_a_retry_that_came_due_while_nobody_waited_is_made_at_once() -> None:
    tried: list[datetime] = []

    def flaky(order: str, cents: int) -> str:
        tried.append(engine.now())
        if len(tried) < 2:
            raise OSError("the bank is away")
        return "paid"

    async with testing.engine(steps={charge: flaky}) as engine:
        first = await engine.start(purchase, "A-1", 5)
        await engine.sleep(HOUR - 0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.Event().wait()
        assert await first.result(timeout=10) == "paid"
        assert tried[1] - tried[0] < timedelta(hours=1, seconds=30)


async def test_a_deadline_is_skipped_to_and_ends_the_process() -> None:
    async with testing.engine() as engine:
        began = engine.now()
        handle = await engine.start(forgotten.options(deadline=timedelta(days=7)))
        with pytest.raises(ProcessFailed, match="deadline"):
            await handle.result(timeout=10)
        assert timedelta(days=7) <= engine.now() - began < timedelta(days=7, minutes=1)


async def test_a_family_wakes_in_the_order_of_its_timers() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.start(family, DAY)
        assert await handle.result(timeout=10) == ["2026-06-02", "2026-06-03", "2026-06-04"]


@pytest.mark.long
async def test_a_queue_with_a_rate_lets_hours_pass() -> None:
    async with testing.engine(steps={bake: lambda loaf: loaf}) as engine:
        await engine.queues.limit("tests.testing.oven", rate=1, per=HOUR)
        began = engine.now()
        handles = [await engine.start(kitchen) for _ in range(3)]
        for handle in handles:
            await handle.result(timeout=30)
        assert timedelta(hours=2) <= engine.now() - began < timedelta(hours=3)


async def test_the_clock_stands_while_the_result_of_what_has_ended_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.engine(begins=MONDAY) as engine:
        search = engine.store.search

        async def slowly(wanted: Search) -> list[Process]:
            found = await search(wanted)
            await asyncio.sleep(0.005)  # a busy machine: the test may get its answer meanwhile
            return found

        monkeypatch.setattr(engine.store, "search", slowly)
        await engine.start(rest, 3 * DAY)
        ended = await engine.start(rest, HOUR)
        for _ in range(20):  # all but the first are read from the store
            assert await ended.result() == "2026-06-01"
        assert engine.now() - MONDAY < timedelta(hours=2)


async def test_sleeping_lets_happen_all_that_is_due_by_then_and_no_more() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        soon, late = await engine.start(rest, HOUR), await engine.start(rest, 3 * HOUR)
        await engine.sleep(timedelta(hours=2))
        assert timedelta(hours=2) <= engine.now() - MONDAY < timedelta(hours=2, minutes=1)
        assert (await soon.status()).status is Status.COMPLETED
        assert (await late.status()).status is Status.RUNNING


async def test_values_and_calls_are_waited_for_like_results() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(week)
        assert [day async for day in handle.values("day", int)] == list(range(7))
        assert await (await engine.start(counter)).call("how many", "loaves", int, timeout=10) == 42


async def test_a_calm_day_with_a_step_every_five_minutes_takes_seconds() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.start(watch, 24 * 12)
        assert await handle.result(timeout=60) == 24 * 12
        assert timedelta(days=1) <= engine.now() - MONDAY < timedelta(days=1, hours=1)


async def test_a_test_that_waits_for_what_nobody_sends_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.engine() as engine:
        handle = await engine.start(forgotten)
        with caplog.at_level(logging.WARNING, "perdure"), pytest.raises(TimeoutError):
            await handle.result(timeout=STUCK_SECONDS + 1)
        (told,) = [line for line in caplog.messages if line.startswith("the test waits")]
        assert handle.id in told and "nothing is due" in told


@pytest.mark.parametrize("wrong", [datetime(2026, 6, 1), "Monday"])  # noqa: DTZ001
async def test_a_beginning_without_a_time_zone_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        async with testing.engine(begins=wrong):
            pass


@pytest.mark.parametrize("wrong", [0, -1, "an hour", timedelta(0)])
async def test_only_a_time_that_passes_can_be_slept(wrong: Any) -> None:
    async with testing.engine() as engine:
        with pytest.raises(InvalidInput, match="the time that is to pass"):
            await engine.sleep(wrong)


async def test_an_engine_that_is_not_open_lets_no_time_pass() -> None:
    async with testing.engine() as engine:
        let_pass: Callable[[float], Any] = engine.sleep
    with pytest.raises(PerdureError, match="not open"):
        await let_pass(1)
