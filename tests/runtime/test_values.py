"""Published values on both stores: each once, in order, to those who look and to those who follow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.client.values import Stream
from perdure.engine import Engine
from perdure.errors import (
    InvalidInput,
    InvalidKey,
    NothingPublished,
    PayloadError,
    PayloadTooLarge,
    ProcessFailed,
    ProcessNotFound,
    WorkflowMisuse,
)
from perdure.kernel.event import EventType
from perdure.kernel.names import id_bytes
from perdure.kernel.retry import Retry
from perdure.turns.publication import publish
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, until, until_row

failing: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    failing.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def act(name: str) -> str:
    if name in gates:
        await gates[name].wait()
    if name in failing:
        failing.remove(name)
        raise ConnectionError(name)
    return name


@workflow
async def report(lines: int) -> str:
    for number in range(1, lines + 1):
        publish("line", f"line {number}")
        publish("percent", 100 * number // lines)
        await act(f"step {number}")
    return "done"


@workflow
async def talk() -> int:
    said = 0
    while (word := await receive("say")) is not None:
        publish("word", word)
        said += 1
    return said


@workflow
async def rounds(left: int) -> None:
    publish("left", left)
    await receive("on")
    if left > 1:
        continue_as_new(left - 1)


@workflow
async def stages() -> str:
    publish("stage", "begun")
    await act("first")
    publish("stage", "half")
    await act("second")
    publish("stage", "whole")
    return "done"


@workflow
async def totals(before: int) -> None:
    if before == 1:
        publish("total", 1)
        continue_as_new(2)
    await receive("on")
    publish("total", before)
    await receive("on")


@workflow
async def late() -> None:
    publish("stage", await act("late"))


FLOWS = [report, talk, rounds, stages, totals, late]


async def collected(stream: Stream[Any]) -> list[Any]:
    async with asyncio.timeout(LIMIT):
        return [value async for value in stream]


async def taken(stream: Stream[Any], count: int) -> list[Any]:
    async with asyncio.timeout(LIMIT):
        return [await anext(stream) for _ in range(count)]


async def numbers(engine: Engine, handle: Handle[Any], run: int | None = None) -> list[int]:
    events = await engine.process(handle.id).history(run)
    return [event.number for event in events if event.type is EventType.PUBLISHED]


async def test_what_a_process_publishes_is_read_while_it_runs_and_after_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    gates["step 2"] = asyncio.Event()
    handle = await engine.start(report, 3)
    await until_row(engine, handle.id, lambda row: row.events >= 5)
    assert await handle.value("line") == "line 2"
    assert await handle.value("percent", int) == 66
    gates["step 2"].set()
    assert await handle.result(LIMIT) == "done"
    assert await handle.value("line", str) == "line 3"
    assert await collected(handle.values("line", str)) == ["line 1", "line 2", "line 3"]
    assert await collected(handle.values("percent")) == [33, 66, 100]
    assert await collected(handle.values()) == ["line 1", 33, "line 2", 66, "line 3", 100]


async def test_what_was_not_published_is_told_as_such_or_has_a_default(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(talk)
    with pytest.raises(NothingPublished, match="'word' yet"):
        await handle.value("word")
    assert await handle.value("word", default=None) is None
    assert await handle.value("word", str, default="-", wait=0.01) == "-"
    await handle.signal("say", 7)
    assert await handle.value("word", wait=LIMIT) == 7
    with pytest.raises(PayloadError):
        await handle.value("word", str)
    with pytest.raises(InvalidKey):
        await handle.value("")
    with pytest.raises(ProcessNotFound):
        await engine.process(b"x" * 16).value("word")
    with pytest.raises(ProcessNotFound):
        await collected(engine.process(b"x" * 16).values("word"))
    await handle.signal("say")
    await handle.result(LIMIT)
    with pytest.raises(NothingPublished):
        await handle.value("other", wait=LIMIT)  # nobody waits for what has ended


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_follows_gets_each_value_when_it_is_published_until_the_process_has_ended(
    opened: Open, elsewhere: bool
) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    if elsewhere and ":memory:" in engine.store.url:
        pytest.skip("one store at a time on this database")
    reader = (await opened(workflows=FLOWS))[0] if elsewhere else engine
    handle = await engine.start(talk)
    stream = reader.process(handle.id).values("word", int)
    for number in range(5):
        await handle.signal("say", number)
        assert await taken(stream, 1) == [number]
    following = asyncio.ensure_future(taken(stream, 1))
    await handle.signal("say")
    with pytest.raises(StopAsyncIteration):
        await following
    assert await collected(stream) == []
    assert reader.parts.followers._stop is None and not reader.parts.followers._waiting


async def test_a_stream_goes_on_where_it_is_told_to_and_ends_with_what_there_is(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(talk)
    for number in range(4):
        await handle.signal("say", number)
    first = handle.values("word")
    assert await taken(first, 2) == [0, 1]
    rest = handle.values("word", after=first.number, run=first.run)
    await first.aclose()
    assert await taken(rest, 2) == [2, 3]
    assert (rest.run, rest.number, rest.name) == (1, (await numbers(engine, handle))[-1], "word")
    await rest.aclose()
    assert await collected(handle.values("word", follow=False)) == [0, 1, 2, 3]
    assert await collected(handle.values("other", follow=False)) == []
    with pytest.raises(InvalidInput, match="there is no run 2"):
        await collected(handle.values("word", run=2))
    with pytest.raises(InvalidInput):
        handle.values("word", after=-1)


async def test_whoever_stops_following_in_the_middle_leaves_nothing_behind(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(talk)
    await handle.signal("say", 1)
    stream = handle.values("word")
    async for _ in stream:
        break
    stream = handle.values("word", after=stream.number)
    following = asyncio.ensure_future(anext(stream))
    await until(lambda: engine.parts.followers._waiting)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    await until(lambda: not engine.parts.followers._waiting)


async def test_a_follower_goes_on_into_the_next_run_and_a_late_one_begins_there(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(rounds, 3)
    stream = handle.values("left", int)
    for left in (3, 2, 1):
        assert await taken(stream, 1) == [left]
        assert await handle.value("left") == left
        await handle.signal("on")
    assert await collected(stream) == []
    assert stream.run == 3
    assert await collected(handle.values("left")) == [1]
    assert await collected(handle.values("left", run=1)) == [3, 2, 1]


async def test_a_run_that_has_just_begun_anew_has_the_last_value_of_the_one_before(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(totals, 1)
    await until_row(engine, handle.id, lambda row: row.run == 2 and row.awaiting == "signal on")
    assert await handle.value("total") == 1
    await handle.signal("on")
    assert await taken(handle.values("total"), 1) == [2]
    assert await handle.value("total") == 2


async def test_a_run_that_was_restarted_has_nothing_until_it_publishes(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(late)
    assert await handle.value("stage", wait=LIMIT) == "late"
    await handle.result(LIMIT)
    gates["late"] = asyncio.Event()
    await handle.restart(why="it counts for nothing")
    with pytest.raises(NothingPublished):
        await handle.value("stage")
    gates["late"].set()
    assert await collected(handle.values("stage", run=1)) == ["late", "late"]


async def test_rule_21_a_retry_keeps_what_was_published_before_the_step_and_publishes_the_rest_anew(
    opened: Open,
) -> None:
    failing.append("second")
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(stages)
    stream = handle.values("stage")
    assert await taken(stream, 2) == ["begun", "half"]
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.retry(why="the bank is open")
    assert await handle.result(LIMIT) == "done"
    assert await collected(handle.values("stage")) == ["begun", "half", "whole"]
    assert await numbers(engine, handle, 2) == [2, 4, 6]
    assert await collected(stream) == ["whole"]  # who has come along gets none of it twice
    await handle.restart(why="once more")
    assert await engine.process(handle.id).result(timeout=LIMIT) == "done"
    assert await collected(handle.values("stage")) == ["begun", "half", "whole"]
    assert await collected(handle.values("stage", run=2, after=6)) == ["begun", "half", "whole"]


async def test_a_restart_from_a_step_publishes_again_what_came_after_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(stages)
    assert await handle.result(LIMIT) == "done"
    await handle.restart_from("act:2", why="it was wrong")
    assert await engine.process(handle.id).result(timeout=LIMIT) == "done"
    assert await collected(handle.values("stage")) == ["begun", "half", "whole"]
    assert await collected(handle.values("stage", run=1)) == ["begun", "half", "whole", "whole"]


async def test_a_replay_publishes_nothing_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(talk)
    for number in range(3):
        await handle.signal("say", number)
    assert await taken(handle.values("word"), 3) == [0, 1, 2]
    await engine.close(0)
    other, _ = await opened(work=True, workflows=FLOWS)
    for number in range(3, 5):
        await other.process(handle.id).signal("say", number)
    await other.process(handle.id).signal("say")
    assert await other.process(handle.id).result(timeout=LIMIT) == 5
    assert await collected(other.process(handle.id).values("word")) == [0, 1, 2, 3, 4]


@workflow
async def flood(values: int, size: int) -> str:
    try:
        for number in range(values):
            publish("drop", "x" * size + str(number))
    except PayloadTooLarge as error:
        return str(error)
    return "all"


@pytest.mark.parametrize(("values", "size", "told"), [(1_000, 1, "all"), (1_001, 1, "1,000 values"), (9, 2**20, "8,3")])
async def test_a_turn_publishes_no_more_than_a_commit_can_hold(opened: Open, values: int, size: int, told: str) -> None:
    engine, _ = await opened(work=True, workflows=[flood])
    handle = await engine.start(flood, values, size)
    assert told in await handle.result(LIMIT)


async def test_many_values_are_read_in_pages(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[flood])
    handle = await engine.start(flood, 250, 1)
    assert await collected(handle.values("drop")) == [f"x{number}" for number in range(250)]


async def test_publishing_belongs_in_a_workflow() -> None:
    with pytest.raises(WorkflowMisuse, match=r"publish\(\) belongs in a workflow"):
        publish("a", 1)


async def test_a_follower_of_a_broken_process_is_let_go(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(talk)
    await handle.signal("say", 1)
    stream = handle.values("word")
    assert await taken(stream, 1) == [1]
    following = asyncio.ensure_future(collected(stream))
    await engine.process(handle.id).terminate()
    assert await following == []
    assert id_bytes(handle.id) == handle.id_bytes
