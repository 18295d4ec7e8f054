"""What a process has been through: each change of its status, and each of its steps, over all its runs."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from perdure import Retry, Status, continue_as_new, step, workflow
from perdure.client.trace import TracedStep
from perdure.errors import ProcessFailed
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_sealed_life import sealed

fails: set[str] = set()
began: set[str] = set()
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _anew() -> None:
    fails.clear()
    began.clear()
    gates.clear()


@step(retry=Retry(attempts=2, first=0.001))
async def charge(cents: int) -> int:
    """Fails if it is told to."""
    if "charge" in fails:
        raise ConnectionError("the bank is closed")
    return cents


@step(queue="traces")
async def ship(parcel: str) -> str:
    """A queued step."""
    return f"{parcel} shipped"


@step
async def waits(gate: str) -> None:
    """Wait for a gate."""
    began.add(gate)
    await gates[gate].wait()


@workflow
async def kid(name: str) -> str:
    """A child."""
    return name.upper()


@workflow
async def order(cents: int) -> str:
    """A step, a queued step and a child."""
    await charge(cents)
    await ship("A-17")
    return await kid.child("ann")


@workflow
async def stopped(gate: str) -> None:
    """Waits."""
    await waits(gate)


@workflow
async def rounds(left: int) -> None:
    """One step in each run."""
    await charge(left)
    if left:
        continue_as_new(left - 1)


async def test_each_change_of_status_is_told_with_its_time_and_who_and_why(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, kid])
    fails.add("charge")
    handle = await engine.start(order, 5)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    fails.clear()
    await handle.retry(who="ann", why="the bank is open")
    await handle.result(LIMIT)
    told = await handle.statuses()
    assert [(one.run, one.was, one.status) for one in told] == [
        (1, None, Status.RUNNING),
        (1, Status.RUNNING, Status.FAILED),
        (2, Status.FAILED, Status.RUNNING),
        (2, Status.RUNNING, Status.COMPLETED),
    ]
    assert [(one.who, one.why, one.origin) for one in told[2:]] == [("ann", "the bank is open", "client"), ("", "", "")]
    assert "the bank is closed" in told[1].why
    times = [one.at for one in told if one.at is not None]
    assert len(times) == 4
    assert times == sorted(times)


async def test_holds_and_ends_by_a_person_are_changes_too(opened: Open) -> None:
    engine, _ = await opened()
    handle = await engine.start(order, 5)
    await handle.hold(who="ann", why="inventory")
    await handle.resume(who="ben")
    await handle.terminate(who="cid", why="by mistake")
    told = await handle.statuses()
    assert [(one.status, one.who, one.why) for one in told[1:]] == [
        (Status.HELD, "ann", "inventory"),
        (Status.RUNNING, "ben", ""),
        (Status.CANCELLED, "cid", "by mistake"),
    ]


async def test_a_run_that_continues_as_new_is_no_change_of_status(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[rounds])
    handle = await engine.start(rounds, 2)
    await handle.result(LIMIT)
    assert [(one.run, one.status) for one in await handle.statuses()] == [(1, Status.RUNNING), (3, Status.COMPLETED)]
    trace = await handle.trace()
    assert [(one.run, one.name, one.result) for one in trace] == [(1, "charge", 2), (2, "charge", 1), (3, "charge", 0)]


async def test_a_trace_has_all_steps_in_their_order_with_what_is_known_of_each(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, kid])
    fails.add("charge")
    handle = await engine.start(order, 5)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    fails.clear()
    await handle.retry()
    assert await handle.result(LIMIT) == "ANN"
    first, again, shipped, child = await handle.trace()
    assert (first.run, first.what, first.status, first.attempts) == (1, "step", "failed", 2)
    assert first.error is not None
    assert "the bank is closed" in first.error.message
    assert first.began is not None
    assert (again.run, again.status, again.result, again.attempts) == (2, "completed", 5, 1)
    assert (again.arguments, again.digest) == (None, first.digest)
    assert (shipped.what, shipped.name, shipped.arguments, shipped.result) == ("task", "ship", ["A-17"], "A-17 shipped")
    assert (child.what, child.arguments, child.result) == ("child", ["ann"], "ANN")
    for one in (shipped, child):
        assert one.began is not None
        assert one.ended is not None
        assert one.began <= one.ended
        assert (await engine.process(one.process or "").status()).status is Status.COMPLETED


async def test_what_is_kept_of_a_run_is_told_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, kid])
    handle = await engine.start(order, 5)
    await handle.result(LIMIT)
    await handle.restart_from("ship")
    await until_row(engine, handle.id, lambda row: row.run == 2 and row.final)
    told = [(one.run, one.name, one.status) for one in await handle.trace()]
    assert told[:3] == [(1, "charge", "completed"), (1, "ship", "completed"), (1, "kid", "completed")]
    assert [one for one in told[3:] if one[1] == "charge"] == []
    assert (2, "ship", "completed") in told


async def test_a_step_under_way_is_open_and_one_that_was_left_is_not(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[stopped])
    handle = await engine.start(stopped, "a")
    await until(lambda: began)

    async def shown() -> list[TracedStep]:
        return list(await handle.trace())

    async with asyncio.timeout(LIMIT):
        while not (steps := await shown()):
            await until_row(engine, handle.id, lambda row: row.progress is not None)
    (one,) = steps
    assert (one.name, one.status, one.attempts) == ("waits", "open", 1)
    assert one.worker is not None
    await handle.terminate()
    assert [one.status for one in await handle.trace()] in ([], ["left"])


async def test_who_lacks_the_key_sees_the_steps_and_not_what_they_were_about(opened: Open) -> None:
    engine, _ = await opened(work=True, codecs=sealed(), workflows=[order, kid])
    handle = await engine.start(order, 5)
    await handle.result(LIMIT)
    stranger, _ = await opened()
    there = stranger.process(handle.id)
    trace = await there.trace()
    assert [one.name for one in trace] == ["charge", "ship", "kid"]
    assert all("unreadable" in one.result for one in trace)
    assert [one.status for one in await there.statuses()] == [Status.RUNNING, Status.COMPLETED]
