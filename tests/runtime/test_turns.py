"""Turns that go wrong: code that turns in a circle, a message to a process that is just ending, histories too long."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.errors import ProcessBroken
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.testing.faults import Gate
from perdure.turns import bare_loop
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@step(retry=Retry.NONE)
async def quick(number: int) -> int:
    done.append(number)
    return number


async def sound(engine: Any, id: str) -> Any:
    """The row, after a check that its record breaks no law."""
    row = await engine.row(id)
    events = await engine.store.history(row.id, row.run, limit=100_000)
    messages = await engine.store.messages([(row.id, 0)])
    assert unsound(row, events, messages, await engine.store.now()) == []
    return row


# -- circles --------------------------------------------------------------------------------


@workflow
async def circling(when: str) -> None:
    if when == "later":
        await gated("x")
    while True:
        await asyncio.sleep(0)


@pytest.mark.parametrize("eager", [True, False], ids=["started here", "claimed"])
async def test_code_that_turns_in_a_circle_breaks_its_process_wherever_it_starts(
    opened: Open, monkeypatch: pytest.MonkeyPatch, eager: bool
) -> None:
    monkeypatch.setattr(bare_loop, "TURN_CALLS", 1000)
    worker, _ = await opened(work=True, workflows=[circling])
    starter = worker if eager else (await opened())[0]
    handle = await starter.start(circling.options(key="k"), "at once")
    assert handle.created
    with pytest.raises(ProcessBroken, match="without waiting for anything"):
        await handle.result(LIMIT)
    assert (await sound(worker, handle.id)).status is Status.BROKEN


async def test_code_that_turns_in_a_circle_later_breaks_only_its_own_process(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_loop, "TURN_CALLS", 1000)
    engine, _ = await opened(work=True, workflows=[circling, one_gate])
    bad, good = await engine.start(circling, "later"), await engine.start(one_gate, "y")
    await until(lambda: len(done) == 2)
    gates["x"].set()
    with pytest.raises(ProcessBroken):
        await bad.result(LIMIT)
    gates["y"].set()
    assert await good.result(LIMIT) == "y"


@workflow
async def one_gate(name: str) -> str:
    return await gated(name)


@workflow
async def misfits_while_committing() -> str:
    first, second = quick(1), gated("second")
    await first
    await second
    while True:
        await asyncio.sleep(0)


async def test_rule_17_a_turn_that_fails_while_a_commit_is_in_flight_parks_the_process_after_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_loop, "TURN_CALLS", 1000)
    engine, store = await opened(work=True, workflows=[misfits_while_committing])
    gate = store.before = Gate("commit")
    handle = await engine.start(misfits_while_committing)
    await asyncio.wait_for(gate.reached.wait(), LIMIT)  # the commit of the first result
    gates["second"].set()
    assert engine.worker is not None
    instance = engine.worker.scheduler.instances[handle.id_bytes]
    await until(lambda: instance.trouble is not None)
    gate.open.set()
    with pytest.raises(ProcessBroken, match="without waiting for anything"):
        await handle.result(LIMIT)
    row = await sound(engine, handle.id)
    assert (row.status, row.events) == (Status.BROKEN, 2)


async def test_an_error_of_the_runtime_itself_parks_one_process_and_stops_nobody_else(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    bad, good = await engine.start(one_gate, "x"), await engine.start(one_gate, "y")
    await until(lambda: len(done) == 2)
    assert engine.worker is not None
    scheduler = engine.worker.scheduler
    scheduler.instances[bad.id_bytes].number = None  # type: ignore[assignment]
    gates["x"].set()
    gates["y"].set()
    with pytest.raises(ProcessBroken):
        await bad.result(LIMIT)
    assert await good.result(LIMIT) == "y"


# -- messages at the end ----------------------------------------------------------------------


async def test_rule_04_a_message_that_is_read_while_its_process_is_ending_is_recorded_and_the_end_is_not_delayed(
    opened: Open,
) -> None:
    """The reader has read a message, but the finishing commit is already on its way: it is answered "read first"."""
    engine, store = await opened(work=True, workflows=[one_gate])
    handle = await engine.start(one_gate, "x")
    await until(lambda: "x" in done)
    reading = store.after = Gate("messages", lambda wants: any(id == handle.id_bytes for id, _ in wants))
    afar, _ = await opened()  # what is sent from here is handed over, and not read
    assert await afar.process(handle.id).signal("late") is SendVerdict.DELIVERED
    await asyncio.wait_for(reading.reached.wait(), LIMIT)
    committing = store.before = Gate("commit")
    gates["x"].set()
    await asyncio.wait_for(committing.reached.wait(), LIMIT)
    reading.open.set()
    for _ in range(50):
        await asyncio.sleep(0)
    committing.open.set()
    assert await handle.result(LIMIT) == "x"
    row = await sound(engine, handle.id)
    assert (row.status, row.inbox, row.seen) == (Status.COMPLETED, 1, 1)
    commits = [name for name, _ in store.calls if name == "commit"]
    assert len(commits) == 2, "once read first, then applied"


async def test_a_signal_to_a_process_in_hand_is_heard_at_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POLL_SECONDS", 3600.0)  # nobody hears of it by looking

    @workflow
    async def hears() -> str:
        slow = gated("slow")
        await quick(1)
        value = await receive("go")
        await slow
        return str(value)

    engine, _ = await opened(work=True, workflows=[hears])
    handle = await engine.start(hears)
    await until(lambda: len(done) == 2)
    await until_row(engine, handle.id, lambda row: row.events == 1)
    await handle.signal("go", 5)
    await until_row(engine, handle.id, lambda row: row.seen == 1)
    gates["slow"].set()
    assert await handle.result(LIMIT) == "5"


# -- long histories ---------------------------------------------------------------------------


@workflow
async def long(steps: int) -> int:
    for number in range(steps):
        await quick(number)
    return steps


async def test_a_long_history_is_told_of_once_and_held_at_its_limit_until_a_person_decides(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "HISTORY_WARN_EVENTS", 5)
    monkeypatch.setattr(limits, "HISTORY_HOLD_EVENTS", 10)
    engine, _ = await opened(work=True, workflows=[long])
    with caplog.at_level(logging.WARNING, logger="perdure"):
        handle = await engine.start(long, 15)
        row = await until_row(engine, handle.id, lambda row: row.status is not Status.RUNNING)
    warnings = [message for message in caplog.messages if "history" in message]
    assert len(warnings) == 1
    assert "will be held at 10" in warnings[0]
    assert (row.status, row.owner, row.reminder) == (Status.HELD, None, True)
    assert b"perdure" not in (row.error or b"")
    assert [event.type.name for event in await handle.history()][-1] == "HELD"
    assert done == list(range(10))
    await handle.retry(who="anna", why="it may go on")
    assert await handle.result(LIMIT) == 15
    assert done == list(range(15)), "as many events again are granted"
    await sound(engine, handle.id)


async def test_a_history_below_the_warning_is_not_told_of(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "HISTORY_WARN_EVENTS", 5)
    engine, _ = await opened(work=True, workflows=[long])
    assert await (await engine.start(long, 3)).result(LIMIT) == 3
    assert [message for message in caplog.messages if "history" in message] == []


# -- far timers, state ------------------------------------------------------------------------


@workflow
async def far() -> None:
    await asyncio.sleep(1e12)


async def test_a_timer_that_no_calendar_holds_is_no_trouble_for_any_store(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[far])
    handle = await engine.start(far)
    row = await until_row(engine, handle.id, lambda row: row.owner is None)
    assert (row.status, row.reminder) == (Status.RUNNING, False)
    view = await handle.status()
    assert view.mover == "timer"
    assert view.until is not None and view.until.year < 2200


@workflow
async def shows(values: list[int]) -> str:
    for value in values:
        set_state({"at": value})
        await quick(value)
    await gated("end")
    return "done"


async def test_the_last_state_of_a_turn_is_stored_with_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[shows])
    handle = await engine.start(shows, [1, 2, 3])
    await until(lambda: "end" in done)
    assert (await handle.status()).state == {"at": 3}
    gates["end"].set()
    await handle.result(LIMIT)
    assert (await handle.status()).state == {"at": 3}


# -- timers of no time -------------------------------------------------------------------


@workflow
async def ticks(times: int) -> int:
    for _ in range(times):
        await asyncio.sleep(0.000_001)
    for _ in range(times):
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            times += 1
    return times


async def test_a_timer_of_no_time_goes_on_without_a_claim_and_a_look_at_the_database(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[ticks])
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    for loop in engine.worker.supervisor.loops:
        await loop.stop()
    assert await (await engine.start(ticks, 5)).result(LIMIT) == 10
    assert engine.metrics()["claims"] == 0 and engine.metrics()["timers"] >= 5


# -- the collector ----------------------------------------------------------------------


@step(retry=Retry.NONE)
async def collecting(number: int) -> int:
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()
    return number


@workflow
async def collected(size: int) -> int:
    results = await asyncio.gather(*(collecting(number) for number in range(size)))
    gc.collect()
    await asyncio.sleep(0.001)
    gc.collect()
    return sum(results) + await collecting(1)


async def test_the_collector_takes_away_nothing_that_is_still_awaited(opened: Open) -> None:
    gc.freeze()  # what was there before need not be looked through a hundred times
    engine, _ = await opened(work=True, workflows=[collected])
    handles = [await engine.start(collected, size) for size in range(8)]
    gc.collect()
    results = await engine.results(handles, LIMIT)
    assert results == [sum(range(size)) + 1 for size in range(8)]
    for handle in handles:
        await sound(engine, handle.id)
