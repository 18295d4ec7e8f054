"""Shortages of a worker: threads, descriptors, memory and cells that the system refuses are no fault of a process."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from perdure import limits
from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.clock import Computer
from perdure.engine import Engine
from perdure.errors import ProcessFailed, StoreUnavailable
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.store.url import store_for
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[object] = []
doors: dict[str, threading.Event] = defaultdict(threading.Event)
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
ONCE = Retry.NONE
HUGE = 1 << 46
"""Bytes of a stack for which no system has room: every thread is really refused."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    done.clear()
    doors.clear()
    gates.clear()
    monkeypatch.setattr(limits, "SHORTAGE_AGAIN_SECONDS", 0.01)
    yield
    for door in doors.values():
        door.set()


@contextmanager
def refused_threads() -> Iterator[None]:
    """While inside, the system refuses every thread."""
    before = threading.stack_size(HUGE)
    try:
        yield
    finally:
        threading.stack_size(before)


async def types(engine: Engine, id: str) -> list[str]:
    return [event.type.name for event in await engine.process(id).history()]


@step(retry=ONCE)
def in_thread(number: int) -> int:
    done.append(number)
    return number + 1


@workflow
async def threaded(number: int) -> int:
    return await in_thread(number)


# -- threads -----------------------------------------------------------------------------------------------------------


async def test_a_refused_thread_makes_a_step_wait_and_breaks_no_process(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[threaded])
    with refused_threads(), caplog.at_level(logging.WARNING):
        handles = [await engine.start(threaded, number) for number in range(5)]
        await until(lambda: engine.metrics()["shortages"] >= 3)
        assert done == []
    assert [await handle.result(LIMIT) for handle in handles] == [1, 2, 3, 4, 5]
    assert sorted(done, key=str) == [0, 1, 2, 3, 4]
    assert await types(engine, handles[0].id) == ["STEP_COMPLETED", "COMPLETED"], "no attempt was used up"
    assert engine.metrics()["broken"] == 0
    assert len([text for text in caplog.messages if "short of threads" in text]) == 1, "it is said once"


async def test_while_threads_are_refused_a_worker_takes_less_in_hand_and_recovers_by_itself(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[threaded])
    assert engine.worker is not None
    shortages = engine.worker.shortages
    with refused_threads():
        handle = await engine.start(threaded, 1)
        await until(lambda: engine.metrics()["shortages"])
        assert shortages.room(2_000) < 2_000
    assert await handle.result(LIMIT) == 2
    await until(lambda: shortages.room(2_000) == 2_000)


@step(retry=ONCE, timeout=0.05)
def hanging(door: str) -> None:
    done.append(door)
    doors[door].wait(LIMIT)


@workflow
async def hangs(door: str) -> str:
    try:
        await hanging(door)
    except Exception as error:
        return type(error).__name__
    return "ended"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hung calls are too many, two of one step too; what waits is handed back soon."""
    monkeypatch.setattr(limits, "LEFT_BEHIND_THREADS", 3)
    monkeypatch.setattr(limits, "STEP_LEFT_BEHIND_THREADS", 2)
    monkeypatch.setattr(limits, "SHORTAGE_WAIT_SECONDS", 0.05)


async def left_behind(engine: Engine, flow: object, number: int) -> None:
    """Have as many calls hang for good."""
    before = engine.metrics()["step_timeouts"]
    for index in range(number):
        await engine.start(flow, f"{flow} {index}")  # type: ignore[arg-type]
    await until(lambda: engine.metrics()["step_timeouts"] - before >= number)


async def test_hung_calls_of_one_step_keep_no_other_step_from_its_threads(
    opened: Open, few: None, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[hangs, threaded])
    with caplog.at_level(logging.ERROR):
        await left_behind(engine, hangs, 2)
        waits = await engine.start(hangs, "a third")
        assert await (await engine.start(threaded, 1)).result(LIMIT) == 2
    row = await until_row(engine, waits.id, lambda row: row.owner is None)
    assert row.status is Status.RUNNING, "it waits for another worker, and is not renewed for ever"
    assert "a third" not in done
    assert any("hanging> have outlived their time" in text for text in caplog.messages)
    assert await (await engine.start(threaded, 2)).result(LIMIT) == 3
    for door in list(doors.values()):
        door.set()
    await waits.result(LIMIT)
    assert "a third" in done, "as soon as threads come back it is served here again"


@step(retry=ONCE, timeout=0.05)
def hanging_too(door: str) -> None:
    doors[door].wait(LIMIT)


@workflow
async def hangs_too(door: str) -> None:
    await hanging_too(door)


@step(retry=ONCE)
async def light(number: int) -> int:
    return number


@workflow
async def unthreaded(number: int) -> int:
    return await light(number)


async def test_a_worker_that_can_begin_no_sync_step_hands_back_what_needs_one_and_serves_the_rest(
    opened: Open, few: None
) -> None:
    flows = [hangs, hangs_too, threaded, unthreaded]
    engine, _ = await opened(work=True, workflows=flows)
    await left_behind(engine, hangs, 2)
    await left_behind(engine, hangs_too, 1)
    waits = await engine.start(threaded, 1)
    assert engine.worker is not None
    unserved = engine.worker.shortages.unserved
    await until(lambda: "threaded" in unserved)  # it may be stored without an owner first
    await until_row(engine, waits.id, lambda row: row.owner is None)
    assert engine.metrics()["processes_put_off"] >= 1
    assert await (await engine.start(unthreaded, 7)).result(LIMIT) == 7
    other, _ = await opened(work=True, workflows=flows)
    assert await waits.result(LIMIT) == 2, "another worker has room"
    assert other.metrics()["claims"] >= 1


async def test_a_shortage_that_does_not_end_asks_once_for_a_restart(
    opened: Open, few: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SHORTAGE_RESTART_SECONDS", 0.05)
    engine, _ = await opened(work=True, workflows=[hangs, hangs_too])
    assert engine.worker is not None
    with caplog.at_level(logging.ERROR):
        await left_behind(engine, hangs, 2)
        await left_behind(engine, hangs_too, 1)
        await asyncio.wait_for(engine.worker.worn_out.wait(), LIMIT)
    assert len([text for text in caplog.messages if "does not recover: restart it" in text]) == 1


async def test_a_database_thread_that_was_refused_works_at_its_next_use(sqlite_url: str) -> None:
    store = store_for(sqlite_url, Computer())
    with refused_threads(), pytest.raises(StoreUnavailable, match="the limits on threads"):
        await store.open(migrate=True)
    await store.open(migrate=True)
    assert await store.now() > 0
    await store.close()


# -- descriptors -------------------------------------------------------------------------------------------------------


def open_a_file_too_many() -> None:
    """Have the system refuse a descriptor, really."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # with 0 a thread's poll() of one file is refused too
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@step(retry=ONCE)
async def opening(times: int) -> int:
    done.append(attempt().number)
    if len(done) <= times:
        try:
            open_a_file_too_many()
        except OSError as error:
            raise ConnectionError("cannot connect") from error
    return attempt().number


@step(retry=ONCE)
def opening_in_thread(times: int) -> int:
    done.append(attempt().number)
    if len(done) <= times:
        raise OSError(errno.ENFILE, "Too many open files in system")
    return attempt().number


@workflow
async def opens(times: int) -> int:
    return await opening(times)


@workflow
async def opens_in_thread(times: int) -> int:
    return await opening_in_thread(times)


@pytest.mark.parametrize("flow", [opens, opens_in_thread])
async def test_an_attempt_without_a_descriptor_is_made_again_and_not_counted(
    opened: Open, flow: object, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[flow])
    with caplog.at_level(logging.ERROR):
        handle = await engine.start(flow, 3)  # type: ignore[arg-type]
        assert await handle.result(LIMIT) == 1, "it is the first attempt still"
    assert done == [1, 1, 1, 1]
    assert await types(engine, handle.id) == ["STEP_COMPLETED", "COMPLETED"]
    assert engine.metrics()["attempts_put_off"] == 3
    assert len([text for text in caplog.messages if "short of descriptors" in text]) == 1


async def test_without_descriptors_for_too_long_an_attempt_counts(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHORTAGE_ATTEMPT_SECONDS", 0.05)
    engine, _ = await opened(work=True, workflows=[opens])
    with pytest.raises(ProcessFailed, match="cannot connect"):
        await (await engine.start(opens, 1_000_000)).result(LIMIT)
    assert engine.metrics()["attempts_put_off"] >= 1


async def test_a_process_whose_attempts_are_put_off_for_long_is_handed_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHORTAGE_WAIT_SECONDS", 0.05)
    engine, _ = await opened(work=True, workflows=[opens])
    await engine.list()  # the connection for people is there before files are short
    handle = await engine.start(opens, 200)
    await until_row(engine, handle.id, lambda row: row.owner is None)
    assert engine.metrics()["processes_put_off"] >= 1
    done.extend([None] * 200)
    assert await handle.result(LIMIT) == 1


# -- memory, and the engine's own bookkeeping --------------------------------------------------------------------------


@dataclass
class Heavy:
    """Whose reading takes more memory than there is, the first time."""

    size: int

    def __post_init__(self) -> None:
        done.append("read")
        if done.count("read") == 3:  # 1 is its making, 2 the check of what the step has returned
            raise MemoryError("of the engine")


@step(retry=ONCE)
async def making() -> Heavy:
    return Heavy(3)


@workflow
async def reads() -> int:
    return (await making()).size


async def test_memory_that_is_short_while_a_turn_is_prepared_hands_the_process_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHORTAGE_WAIT_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=[reads])
    handle = await engine.start(reads)
    assert await handle.result(LIMIT) == 3
    assert (engine.metrics()["processes_put_off"], engine.metrics()["broken"]) == (1, 0)


@step(retry=Retry(attempts=2, first=0.001, jitter=0.0))
async def greedy() -> int:
    if attempt().number == 1:
        raise MemoryError("of the step")
    return attempt().number


@workflow
async def devours() -> int:
    return await greedy()


async def test_memory_that_a_step_wants_is_its_own_affair_and_counts(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[devours])
    assert await (await engine.start(devours)).result(LIMIT) == 2
