"""The results of many processes in one call: in order, with few queries, and nobody waits longer than he must."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.client.results import SETTLED
from perdure.errors import InvalidInput, PayloadError, ProcessFailed, ProcessNotFound
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from tests.runtime.conftest import LIMIT, Open, until, until_row

gates: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def _a_closed_gate() -> None:
    gates[:] = [asyncio.Event()]


@step(retry=Retry.NONE)
async def halve(number: int) -> int:
    if number < 0:
        await gates[0].wait()
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@workflow
async def halving(number: int) -> int:
    return await halve(number)


async def ended_elsewhere(opened: Open, *numbers: int) -> tuple[Any, Any, list[Any]]:
    """A client, its store and its handles of processes that another engine has brought to their ends."""
    worker, _ = await opened(work=True, workflows=[halving])
    client, store = await opened(workflows=[halving])
    handles = await client.start_many(halving, [(number,) for number in numbers])
    for handle in handles:
        await until_row(worker, handle.id, lambda row: row.status in SETTLED)
    store.calls.clear()
    return client, store, handles


async def test_the_results_come_in_the_order_of_the_handles_and_in_few_queries(opened: Open) -> None:
    client, store, handles = await ended_elsewhere(opened, *range(0, 100, 2))
    handles.append(handles[7])
    assert await client.results(reversed(handles), LIMIT) == [7, *reversed(range(50))]
    assert 1 <= sum(name == "search" for name, _ in store.calls) <= 3
    assert not client.parts.results.awaited
    assert await client.results([]) == []


async def test_those_that_run_here_are_looked_up_nowhere(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[halving])
    handles = await engine.start_many(halving, [(-2 * number,) for number in range(1, 4)])
    waiting = asyncio.create_task(engine.results(handles, LIMIT))
    await until(lambda: len(engine.parts.results.awaited) == 3)
    store.calls.clear()
    gates[0].set()
    assert await waiting == [-1, -2, -3]
    assert not [search for name, search in store.calls if name == "search" and search.statuses == SETTLED]


async def test_the_first_in_order_that_has_no_result_raises_and_nobody_waits_for_the_others(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[halving])
    handles = await engine.start_many(halving, [(2,), (1,), (3,), (-2,)])
    with pytest.raises(ProcessFailed, match="1 is odd"):
        await engine.results(handles)
    assert not engine.parts.results.awaited
    gates[0].set()
    assert await handles[3].result(LIMIT) == -1, "its process went on"


async def test_errors_take_the_places_of_results_if_they_are_asked_for(opened: Open) -> None:
    client, _, handles = await ended_elsewhere(opened, 2, 1)
    (late,) = await client.start_many(halving, [(-2,)])
    nobody = client.process(client.machine.new_id())
    misread = client.process(handles[0].id, str)
    every = [handles[1], nobody, late, misread, client.process(handles[0].id)]
    failed, unknown, slow, unfit, result = await client.results(every, 0, return_exceptions=True)
    assert isinstance(failed, ProcessFailed) and "1 is odd" in str(failed)
    assert isinstance(unknown, ProcessNotFound) and nobody.id in str(unknown)
    assert isinstance(slow, TimeoutError) and str(slow).startswith(f"process {late.id} has not ended within 0 s")
    assert isinstance(unfit, PayloadError)
    assert result == 1
    with pytest.raises(ProcessNotFound, match=nobody.id):
        await client.results([handles[0], nobody, handles[1]])
    assert not client.parts.results.awaited
    gates[0].set()


async def test_when_time_is_up_the_first_that_has_not_ended_is_named(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_SECONDS", 0.0)  # so short a timeout is no question for what has ended already
    engine, _ = await opened(work=True, workflows=[halving])
    handles = await engine.start_many(halving, [(2,), (-2,), (4,), (-4,)])
    for handle in (handles[0], handles[2]):
        await until_row(engine, handle.id, lambda row: row.status is Status.COMPLETED)
    with pytest.raises(TimeoutError, match=f"{handles[1].id} has not ended within 0.05 s, and goes on") as raised:
        await engine.results(handles, 0.05)
    assert raised.value.__context__ is None, "the timer inside is nobody's business"
    assert not engine.parts.results.awaited
    monkeypatch.undo()
    first, second, third, fourth = await engine.results(handles, 0.05, return_exceptions=True)
    assert (first, third) == (1, 2)
    assert isinstance(second, TimeoutError) and isinstance(fourth, TimeoutError)
    assert not engine.parts.results.awaited
    gates[0].set()
    assert await engine.results(handles) == [1, -1, 2, -2]


async def test_who_is_cancelled_waits_no_more(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[halving])
    waiting = asyncio.create_task(engine.results(await engine.start_many(halving, [(-2,), (-4,)])))
    await until(lambda: len(engine.parts.results.awaited) == 2)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() and not engine.parts.results.awaited
    gates[0].set()


async def test_what_is_no_handle_of_this_engine_is_refused(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[halving])
    other, _ = await opened(workflows=[halving])
    handle = await engine.start(halving, 2)
    for wrong in (other.process(handle.id), handle.id, None):
        with pytest.raises(InvalidInput, match="no handle of this engine"):
            await engine.results([handle, wrong])
    with pytest.raises(InvalidInput, match="the timeout is"):
        await engine.results([handle], -1)
    assert not engine.parts.results.awaited
