"""Schedules through the portal: the verbs of ``engine.schedules`` as ordinary calls."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from perdure import BlockingEngine, Engine, Schedule
from perdure.client.schedules import ScheduleHandle, Schedules, ScheduleView
from perdure.errors import InvalidInput, ScheduleNotFound
from perdure.portal import BlockingScheduleHandle, BlockingSchedules
from tests.portal import shop
from tests.portal.test_verbs import LIMIT, verbs

OF_WORKERS = {"declare"}
"""What workers do as they begin, and no application."""
A_MOMENT = 0.01
DAILY = Schedule("0 3 * * *", zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("kind", "blocking"), [(Schedules, BlockingSchedules), (ScheduleHandle, BlockingScheduleHandle)]
)
def test_every_verb_of_a_schedule_has_its_blocking_one_with_the_same_parameters(kind: type, blocking: type) -> None:
    for name, verb in verbs(kind).items():
        if name not in OF_WORKERS:
            own = getattr(blocking, name)
            assert inspect.signature(own).parameters.keys() == inspect.signature(verb).parameters.keys()  # type: ignore[arg-type]
            assert own.__doc__ and not inspect.iscoroutinefunction(own)


async def until(engine: Engine, seen: Callable[[list[ScheduleView]], bool]) -> None:
    """Wait until the schedules look like that."""
    async with asyncio.timeout(LIMIT):
        while not seen(await engine.schedules.list()):
            await asyncio.sleep(A_MOMENT)


def test_schedules_are_put_triggered_filled_in_and_listed_without_an_event_loop(engine: BlockingEngine) -> None:
    nightly = engine.schedules.put("nightly", DAILY, shop.order_paid, "A-1")
    assert (nightly.name, repr(nightly)) == ("nightly", "<BlockingScheduleHandle nightly>")
    assert nightly.trigger(timeout=LIMIT).result(LIMIT) == "receipt A-1"
    first, last = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 3, tzinfo=UTC)
    assert nightly.backfill(first, last, timeout=LIMIT) == 2
    [seen] = engine.schedules.list()
    assert (seen.name, seen.workflow, seen.started) == ("nightly", "order_paid", 3)
    assert engine.process(seen.recent[-1].process).result(LIMIT) == "receipt A-1"
    assert nightly.process().id == seen.process and nightly.process().status().kind == "perdure/schedule"


def test_schedules_are_paused_resumed_and_removed_without_an_event_loop(engine: BlockingEngine) -> None:
    engine.schedules.put("nightly", DAILY, shop.order_paid, "A-1")
    nightly = engine.schedules.handle("nightly")
    nightly.pause(who="Ann", why="a holiday")
    engine.run(until, lambda seen: seen[0].paused != "")
    assert (nightly.status().paused, nightly.status().next) == ("a holiday", None)
    nightly.resume()
    engine.run(until, lambda seen: seen[0].paused == "")
    nightly.remove()
    engine.run(until, lambda seen: seen == [])
    with pytest.raises(ScheduleNotFound):
        nightly.status()


def test_errors_of_schedules_are_those_of_the_client(engine: BlockingEngine) -> None:
    with pytest.raises(ScheduleNotFound):
        engine.schedules.handle("nothing").trigger()
    with pytest.raises(InvalidInput):
        engine.schedules.handle("")
    with pytest.raises(InvalidInput):
        engine.schedules.put("n", DAILY, shop.order_paid.options(key="A-1"), "A-1")
    assert engine.schedules.list() == []
