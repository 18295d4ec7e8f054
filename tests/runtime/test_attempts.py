"""Attempts of steps: whatever they raise, however long they hang, and what the next attempt knows of them."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessCancelled, ProcessFailed, StepError, StepTimeout
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
doors: dict[str, threading.Event] = defaultdict(threading.Event)
ONCE = Retry.NONE
SOON = Retry(attempts=3, first=0.001, jitter=0.0)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()
    doors.clear()


async def names(engine: Any, id: str) -> list[str]:
    return [event.type.name for event in await engine.process(id).history()]


# -- whatever they raise -----------------------------------------------------------------------------------------


class Boom(BaseException):
    """Not even an Exception."""


RAISED: dict[str, type[BaseException]] = {
    error.__name__: error
    for error in (Boom, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration)
}


@step(retry=ONCE)
async def raising(name: str) -> None:
    raise RAISED[name]("of the step")


@step(retry=ONCE)
def raising_in_a_thread(name: str) -> None:
    raise RAISED[name]("of the step")


@workflow
async def raises(name: str) -> list[str]:
    told = []
    for one in (raising, raising_in_a_thread):
        try:
            await one(name)
        except StepError as error:
            told.append(f"{error.step} {error.type}")
    return told


@pytest.mark.parametrize("name", RAISED)
async def test_whatever_a_step_raises_is_recorded_and_its_worker_lives(opened: Open, name: str) -> None:
    engine, _ = await opened(work=True, workflows=[raises, one_gate])
    handle = await engine.start(raises, name)
    told = await handle.result(LIMIT)
    assert [line.split()[0] for line in told] == ["raising", "raising_in_a_thread"]
    assert (await names(engine, handle.id)).count("STEP_FAILED") == 2
    gates["x"].set()
    assert await (await engine.start(one_gate, "x")).result(LIMIT) == "x"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even its text fails")


@step(retry=ONCE)
async def unspeakable() -> None:
    raise Unspeakable


@workflow
async def speaks() -> str:
    try:
        await unspeakable()
    except StepError as error:
        return error.type
    return "never"


async def test_an_error_that_cannot_even_be_told_is_recorded(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[speaks])
    assert await (await engine.start(speaks)).result(LIMIT) == "Unspeakable"


# -- time --------------------------------------------------------------------------------


@step(retry=ONCE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def one_gate(name: str) -> str:
    return await gated(name)


@step(retry=ONCE, timeout=0.05)
def outliving(name: str) -> str:
    doors[name].wait(LIMIT)
    return "too late"


@workflow
async def outlived(name: str) -> str:
    try:
        return await outliving(name)
    except StepTimeout:
        await gated("after")
        return "timed out"


async def test_a_thread_that_outlives_its_time_is_heard_no_more(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[outlived])
    door = doors["x"]
    handle = await engine.start(outlived, "x")
    await until(lambda: "after" in done)
    door.set()
    await until(lambda: engine.metrics().get("late_results"))
    gates["after"].set()
    assert await handle.result(LIMIT) == "timed out"
    assert await names(engine, handle.id) == ["STEP_FAILED", "STEP_COMPLETED", "COMPLETED"]
    assert engine.metrics()["step_timeouts"] == 1


@step(retry=ONCE, timeout=1.0)
def beating(name: str) -> str:
    for beat in range(30):
        if doors[name].wait(0.05):
            break
        attempt().heartbeat(beat)
    return "alive to the end"


@workflow
async def beats(name: str) -> str:
    return await beating(name)


async def test_heartbeats_of_a_thread_start_its_time_anew(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beats])
    handle = await engine.start(beats, "x")
    assert await handle.result(LIMIT) == "alive to the end"
    assert engine.metrics().get("step_timeouts", 0) == 0


@step(retry=ONCE, timeout=1.0)
def crowding(name: str, number: int) -> int:
    done.append(number)
    doors[name].wait(0.05)
    return number


@workflow
async def crowd(name: str, size: int) -> int:
    return sum(await asyncio.gather(*(crowding(name, number) for number in range(size))))


async def test_the_time_of_a_step_that_waits_for_a_thread_has_not_begun(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STEP_THREADS", 1)  # of two, the second could be the first to write its number down
    engine, _ = await opened(work=True, workflows=[crowd])
    handle = await engine.start(crowd, "x", 25)
    assert await handle.result(LIMIT) == sum(range(25))
    assert done == list(range(25)), "first come, first served"
    assert engine.metrics().get("step_timeouts", 0) == 0


async def test_hung_threads_do_not_starve_the_steps_of_others(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STEP_THREADS", 2)
    engine, _ = await opened(work=True, workflows=[outlived, crowd])
    never = doors["never"]
    try:
        hung = [await engine.start(outlived, "never") for _ in range(4)]
        doors["x"].set()
        handle = await engine.start(crowd, "x", 4)
        assert await handle.result(LIMIT) == 6
        gates["after"].set()
        assert [await one.result(LIMIT) for one in hung] == ["timed out"] * 4
    finally:
        never.set()


# -- retries --------------------------------------------------------------------------------


@step(retry=Retry(attempts=3, first=0.3, factor=1.0, jitter=0.0))
async def failing(until_attempt: int) -> int:
    done.append(attempt().number)
    if attempt().number < until_attempt:
        raise ConnectionError(f"attempt {attempt().number}")
    return attempt().number


@workflow
async def retries(until_attempt: int) -> int:
    return await failing(until_attempt)


async def test_a_long_wait_for_a_retry_costs_no_memory_and_survives_its_worker(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOLD_SECONDS", 0.01)
    first, _ = await opened(work=True, workflows=[retries])
    handle = await first.start(retries, 3)
    row = await until_row(first, handle.id, lambda row: row.owner is None and row.awaiting)
    assert (row.reminder, row.awaiting) == (False, "step failing")
    await until(lambda: not first.metrics()["in_hand"])
    await first.close()
    second, _ = await opened(work=True, workflows=[retries])
    assert await second.process(handle.id).result(timeout=LIMIT) == 3
    assert done == [1, 2, 3]


@step(retry=SOON)
async def failing_behind_a_gate() -> None:
    await gates[f"attempt {attempt().number}"].wait()
    done.append(attempt().number)
    raise ConnectionError(f"attempt {attempt().number}")


@workflow
async def retries_behind_gates() -> None:
    await failing_behind_a_gate()


async def test_retries_spent_before_a_takeover_stay_spent(opened: Open) -> None:
    """1 of 2 retries used, the worker is gone, another takes over: exactly 1 more."""
    options = WorkerOptions(lease_seconds=1.5, beat_seconds=0.1)
    first, store = await opened(work=True, workflows=[retries_behind_gates], options=options)
    gates["attempt 1"].set()
    gates["attempt 2"].set()
    handle = await first.start(retries_behind_gates)
    await until(lambda: done == [1, 2])
    assert first.worker is not None
    await until_row(first, handle.id, lambda row: row.events == 2)
    await first.worker.claimer.loop.stop()
    first.worker.scheduler.drop(first.worker.scheduler.instances[handle.id_bytes])
    await store.retire(first.worker.incarnation.id, None, died=False)
    gates["attempt 3"].set()
    second, _ = await opened(work=True, workflows=[retries_behind_gates], options=options)
    with pytest.raises(ProcessFailed, match="attempt 3"):
        await second.process(handle.id).result(timeout=LIMIT)
    assert done == [1, 2, 3]
    types = await names(second, handle.id)
    assert [name for name in types if name != "REVIVED"] == [
        "ATTEMPT_FAILED",
        "ATTEMPT_FAILED",
        "STEP_FAILED",
        "FAILED",
    ]


@step(retry=Retry(attempts=3, first=3600.0, cap=3600.0, jitter=0.0))
async def failing_for_an_hour() -> None:
    done.append(attempt().number)
    raise ConnectionError("try again in an hour")


@workflow
async def patient() -> str:
    try:
        return str(await failing_for_an_hour())
    except asyncio.CancelledError:
        done.append("cancelled")
        raise


async def test_a_cancel_during_the_wait_for_a_retry_ends_the_wait(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOLD_SECONDS", 7200.0)  # it stays in hand, and is told there
    engine, _ = await opened(work=True, workflows=[patient])
    handle = await engine.start(patient)
    await until_row(engine, handle.id, lambda row: row.events == 1)
    await handle.cancel(who="anna")
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert done == [1, "cancelled"]


# -- progress --------------------------------------------------------------------------------


@step(retry=SOON)
async def copying(name: str) -> list[Any]:
    before = attempt().last_progress
    done.append(before)
    attempt().heartbeat({"rows": 10 if before is None else before["rows"] + 10})
    await gates[name].wait()
    if attempt().number < 3 and name == "failing":
        raise ConnectionError("try again")
    return done


@workflow
async def copies(name: str) -> Any:
    return await copying(name)


async def test_the_next_attempt_knows_how_far_the_last_one_came(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[copies])
    gates["failing"].set()
    handle = await engine.start(copies, "failing")
    assert await handle.result(LIMIT) == [None, {"rows": 10}, {"rows": 20}]
    assert (await engine.row(handle.id)).progress is None, "nothing is open any more"


async def test_progress_is_known_to_whoever_takes_over(opened: Open) -> None:
    options = WorkerOptions(lease_seconds=1.5, beat_seconds=0.1)
    first, store = await opened(work=True, workflows=[copies], options=options)
    handle = await first.start(copies, "x")
    row = await until_row(first, handle.id, lambda row: b'"rows":10' in (row.progress or b""))
    assert row.owner is not None
    assert first.worker is not None
    await store.retire(row.owner, None, died=False)
    await first.worker.claimer.loop.stop()
    second, _ = await opened(work=True, workflows=[copies], options=options)
    await until(lambda: len(done) == 2)
    gates["x"].set()
    await second.process(handle.id).result(timeout=LIMIT)
    assert done == [None, {"rows": 10}]


@workflow
async def copies_beside() -> Any:
    slow = asyncio.create_task(copies.function("x"))
    for number in range(3):
        await gated(f"beside {number}")
    return await slow


@workflow
async def copies_three_times() -> Any:
    return await asyncio.gather(*(copying(name) for name in ("one", "two", "three")))


async def test_what_steps_report_is_written_with_beats_and_not_with_each_commit(opened: Open) -> None:
    options = WorkerOptions(lease_seconds=3.0, beat_seconds=0.1)
    engine, store = await opened(work=True, workflows=[copies_three_times], options=options)
    handle = await engine.start(copies_three_times)
    await until_row(engine, handle.id, lambda row: (row.progress or b"").count(b'"rows":10') == 3)
    store.calls.clear()
    for ended, name in enumerate(("one", "two", "three"), 1):
        gates[name].set()
        if ended < 3:
            await until_row(engine, handle.id, lambda row, ended=ended: row.events == ended)
    await handle.result(LIMIT)
    kept = [commit.progress_kept for door, commits in store.calls if door == "commit" for commit in commits]
    assert kept == [True, True, False]
    assert (await engine.row(handle.id)).progress is None, "nothing is open any more"


async def test_progress_of_one_step_survives_the_commits_of_others(opened: Open) -> None:
    engine, _ = await opened(
        work=True, workflows=[copies_beside], options=WorkerOptions(lease_seconds=3.0, beat_seconds=0.1)
    )
    handle = await engine.start(copies_beside)
    await until_row(engine, handle.id, lambda row: b'"rows":10' in (row.progress or b""))
    for number in range(3):
        gates[f"beside {number}"].set()
    row = await until_row(engine, handle.id, lambda row: row.events == 3)
    assert b'"rows":10' in (row.progress or b"")
    gates["x"].set()
    await handle.result(LIMIT)
