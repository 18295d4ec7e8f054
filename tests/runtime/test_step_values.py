"""Values that a running step publishes, on both stores: read while it runs, kept whatever becomes of the attempt."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.client.values import Stream
from perdure.errors import InvalidKey, PayloadTooLarge, ProcessFailed
from perdure.kernel.retry import Retry
from perdure.testing.faults import Gate
from perdure.turns.publication import publish
from tests.runtime import hard
from tests.runtime.conftest import LIMIT, Open, until_row

gates: dict[str, asyncio.Event] = {}
threads: dict[str, threading.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    gates.clear()
    gates["go"], gates["end"] = asyncio.Event(), asyncio.Event()
    threads["beaten"], threads["end"] = threading.Event(), threading.Event()


@step(retry=Retry(attempts=2, first=0.001, jitter=0.0))
async def write(words: list[str], fail: bool) -> int:
    for word in words:
        attempt().publish("word", word)
    await gates["go"].wait()
    attempt().publish("word", f"end of attempt {attempt().number}")
    if fail and attempt().number == 1:
        raise ConnectionError("the pen is dry")
    return len(words)


@step(retry=Retry.NONE)
def threaded(count: int) -> int:
    for number in range(count):
        attempt().publish("number", number)
    return count


@step(retry=Retry.NONE)
async def flood() -> str:
    try:
        for number in range(1_000_000):
            attempt().publish("drop", number)
    except PayloadTooLarge as error:
        return str(error)
    return "all"


@step(retry=Retry.NONE)
def beats_in_a_thread() -> int:
    this = attempt()
    this.heartbeat(1)
    this.publish("number", 1)
    this.heartbeat(2)
    threads["beaten"].set()
    threads["end"].wait(LIMIT)
    return 2


@step(retry=Retry.NONE)
async def goes_on(upto: int) -> int:
    this = attempt()
    for number in range(this.last_progress or 0, upto):
        this.publish("number", number)
        this.heartbeat(number + 1)
        if number == 1:
            await gates["go"].wait()
    await gates["end"].wait()
    return upto


@step(queue="desk", retry=Retry.NONE)
async def queued() -> None:
    attempt().publish("word", "nobody would look here")


@workflow
async def letter(words: list[str], fail: bool = False) -> int:
    publish("word", "dear")
    number = await write(words, fail)
    publish("word", "yours")
    return number


@workflow
async def counted(count: int) -> int:
    return await threaded(count)


@workflow
async def reporting(upto: int) -> int:
    return await goes_on(upto)


@workflow
async def in_a_thread() -> int:
    return await beats_in_a_thread()


@workflow
async def flooded() -> str:
    return await flood()


@workflow
async def asked() -> None:
    await queued()


FLOWS = [letter, counted, flooded, asked, reporting, in_a_thread]


async def taken(stream: Stream[Any], count: int) -> list[Any]:
    async with asyncio.timeout(LIMIT):
        return [await anext(stream) for _ in range(count)]


async def rest(stream: Stream[Any]) -> list[Any]:
    async with asyncio.timeout(LIMIT):
        return [value async for value in stream]


async def test_what_a_step_publishes_is_read_while_it_runs(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(letter, ["it", "rains"])
    stream = handle.values("word")
    assert await taken(stream, 3) == ["dear", "it", "rains"]
    gates["go"].set()
    assert await rest(stream) == ["end of attempt 1", "yours"]
    assert await handle.result(LIMIT) == 2
    types = [event.type.name for event in await engine.process(handle.id).history()]
    assert types == [*["PUBLISHED"] * 4, "STEP_COMPLETED", "PUBLISHED", "COMPLETED"]


async def test_the_next_attempt_publishes_anew_and_a_replay_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(letter, ["it"], True)
    assert await taken(handle.values("word"), 2) == ["dear", "it"]
    await engine.close(0)
    gates["go"].set()
    other, _ = await opened(work=True, workflows=FLOWS)
    assert await other.process(handle.id).result(timeout=LIMIT) == 1
    whole = ["dear", "it", "it", "end of attempt 1", "it", "end of attempt 2", "yours"]
    assert await rest(other.process(handle.id).values("word")) == whole


async def test_a_step_in_a_thread_publishes_in_its_order(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(counted, 200)
    assert await handle.result(LIMIT) == 200
    assert await rest(handle.values("number")) == list(range(200))


async def test_progress_is_not_told_before_the_values_that_were_published_before_it(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    assert engine.worker is not None
    store.before = written = Gate("commit")
    handle = await engine.start(reporting, 3)
    await asyncio.wait_for(written.reached.wait(), LIMIT)
    (instance,) = engine.worker.scheduler.instances.values()
    assert engine.worker.heartbeat._renewal(instance).progress is None, "two values wait to be written"
    gates["go"].set()
    written.open.set()
    assert await taken(handle.values("number"), 3) == [0, 1, 2]
    row = await until_row(engine, handle.id, lambda row: row.progress is not None)
    assert b'"reported":3' in row.progress
    gates["end"].set()
    assert await handle.result(LIMIT) == 3


async def test_progress_of_a_thread_is_not_told_before_the_values_that_are_on_their_way_to_the_loop(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    assert engine.worker is not None
    worker, told = engine.worker, list[Any]()
    begin = worker.scheduler.agent.begin

    def held(instance: Any, ask: Any) -> None:  # nothing else runs on the loop until the thread has done all three
        begin(instance, ask)
        threads["beaten"].wait(LIMIT)
        told.append(worker.heartbeat._renewal(instance).progress)

    monkeypatch.setattr(worker.scheduler.agent, "begin", held)
    handle = await engine.start(in_a_thread)
    assert await taken(handle.values("number"), 1) == [1]
    assert b'"reported":1' in told[0], "the second report came after a value that the loop did not know of"
    threads["end"].set()
    assert await handle.result(LIMIT) == 2


async def test_a_step_that_publishes_without_pause_is_told_to_wait(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(flooded)
    assert "1,000 values wait to be written" in await handle.result(LIMIT)
    assert len(await rest(handle.values("drop"))) == 1_000


async def test_a_queued_step_publishes_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS, queues=["desk"])
    handle = await engine.start(asked)
    with pytest.raises(ProcessFailed, match="a queued step is a process of its own"):
        await handle.result(LIMIT)


async def test_a_hard_step_publishes_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[hard.shouts])
    handle = await engine.start(hard.shouts)
    with pytest.raises(ProcessFailed, match="a hard step runs apart and cannot publish"):
        await handle.result(LIMIT)


async def test_outside_of_a_process_publishing_does_nothing_but_check() -> None:
    attempt().publish("word", 1)
    with pytest.raises(InvalidKey):
        attempt().publish("", 1)
