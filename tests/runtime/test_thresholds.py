"""Thresholds of steps in life: what comes after so many failed attempts, across workers and by a person's hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import Policy, Retry, Search, WorkerOptions, saga, step, testing, workflow
from perdure.authoring.step import attempt
from perdure.errors import ProcessBroken, ProcessFailed, StepTimeout
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import FailedAttempt, decode_attempt
from tests.runtime.conftest import LIMIT, Open, lose, until

tried: list[Any] = []
mended: list[str] = []
NOW: dict[str, Any] = {"first": 0, "jitter": 0}
CHAIN = Retry(attempts=2, **NOW, then=["alert", Retry(attempts=2, **NOW), "break"])


@pytest.fixture(autouse=True)
def _nothing_tried() -> None:
    tried.clear()
    mended.clear()


@pytest.fixture
async def clock() -> AsyncIterator[testing.SkippingEngine]:
    async with testing.engine(workflows=[far_apart]) as engine:
        yield engine


async def attempts(engine: Any, id: str) -> list[FailedAttempt]:
    history = await engine.process(id).history()
    return [decode_attempt(event.payload) for event in history if event.type is EventType.ATTEMPT_FAILED]


def alerts(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "alert", False)]


# -- wait longer, give more time ---------------------------------------------------------------------------------------


@step(retry=Retry(backoffs=[10, 20], jitter=0, then=[Retry(attempts=2, first=300, cap=300, jitter=0)]))
async def call_the_bank() -> None:
    tried.append(attempt().number)
    raise ConnectionError("the line is dead")


@workflow
async def far_apart() -> None:
    await call_the_bank()


async def test_behind_the_threshold_it_waits_longer_and_then_gives_up(clock: testing.SkippingEngine) -> None:
    handle = await clock.start(far_apart)
    with pytest.raises(ProcessFailed, match="tried 5 times"):
        await handle.result(LIMIT)
    failed = await attempts(clock, handle.id)
    history = await clock.process(handle.id).history()
    at = [event.at for event in history if event.type is EventType.ATTEMPT_FAILED]
    assert [round((one.retry_at - when) / 1e6) for one, when in zip(failed, at, strict=True)] == [10, 20, 300, 300]
    assert [(one.stage, one.before) for one in failed] == [(0, 0), (0, 0), (1, 3), (1, 3)]


GROWING = Retry(
    attempts=3, **NOW, timeout_factor=2, timeout_cap=0.15, then=[Retry(attempts=1, **NOW, timeout_factor=4)]
)


@step(timeout=0.05, retry=GROWING)
async def slow_report() -> None:
    tried.append(attempt().remaining())
    await asyncio.Event().wait()


@workflow
async def more_time() -> str:
    try:
        await slow_report()
    except StepTimeout as error:
        return f"{error.attempts}"
    return "done"


async def test_each_attempt_gets_more_time_than_the_one_before_up_to_the_longest(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[more_time])
    handle = await engine.start(more_time)
    assert await handle.result(LIMIT) == "4"
    assert [one.timeout for one in await attempts(engine, handle.id)] == [0.1, 0.15, 0.6]
    for left, before, longest in zip(tried, (0, 0.05, 0.1, 0.15), (0.05, 0.1, 0.15, 0.6), strict=True):
        assert before < left <= longest


@step(timeout=40, retry=Retry(attempts=2, **NOW, timeout_factor=3))
def beating() -> float:
    attempt().heartbeat()
    if attempt().number == 1:
        raise ConnectionError("once more")
    return attempt().remaining()


@workflow
async def beats() -> float:
    return await beating()


async def test_a_heartbeat_starts_the_longer_time_anew_also_in_a_thread(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beats])
    assert 90 < await (await engine.start(beats)).result(LIMIT) <= 120


# -- alert, break ------------------------------------------------------------------------------------------------------


@step(retry=CHAIN)
async def ship(order: str) -> str:
    tried.append(attempt().number)
    if not mended:
        raise ConnectionError("the warehouse is away")
    return f"{order} shipped"


@step(undo=ship)
async def book(order: str) -> str:
    return order


@workflow
async def shipping(order: str) -> str:
    return await ship(order)


async def broken(engine: Any, handle: Any) -> ProcessBroken:
    with pytest.raises(ProcessBroken) as found:
        await handle.result(LIMIT)
    return found.value


async def test_people_are_told_once_and_in_the_end_the_process_waits_for_one(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[shipping])
    handle = await engine.start(shipping, "A-1")
    error = await broken(engine, handle)
    assert error.type == "RetriesSpent"
    assert "ship:1 was tried 4 times" in str(error)
    assert "ConnectionError: the warehouse is away" in str(error)
    alert, end = alerts(caplog)
    assert (alert.levelname, alert.name, alert.step, alert.attempt) == ("WARNING", "perdure.alert", "ship", 2)  # type: ignore[attr-defined]
    assert "and it is tried on" in alert.getMessage()
    assert "is broken" in end.getMessage()
    assert engine.metrics()["step_alerts"] == 1
    history = [event.type.name for event in await handle.history()]
    assert history == ["ATTEMPT_FAILED"] * 4 + ["BROKEN"]


async def test_a_retry_by_a_person_gives_it_the_whole_chain_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[shipping])
    handle = await engine.start(shipping, "A-1")
    await broken(engine, handle)
    await handle.retry(who="anna")
    await broken(engine, handle)
    assert tried == [1, 2, 3, 4] * 2
    mended.append("the warehouse")
    await handle.retry(who="anna")
    assert await handle.result(LIMIT) == "A-1 shipped"


async def test_a_person_gives_the_result_that_the_step_could_not_have(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[shipping])
    handle = await engine.start(shipping, "A-1")
    await broken(engine, handle)
    await handle.set_result("ship", "A-1 by taxi", who="anna")
    assert await handle.result(LIMIT) == "A-1 by taxi"


@step
async def label(order: str) -> str:
    await until(lambda: len(tried) >= 4)
    return order


@workflow
async def labelling(order: str) -> str:
    shipping = asyncio.ensure_future(ship(order))
    await label(order)
    return await shipping


async def test_a_new_run_gives_it_the_whole_chain_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[labelling])
    handle = await engine.start(labelling, "A-1")
    await broken(engine, handle)
    await handle.restart_from("label", who="anna")
    await broken(engine, handle)
    assert tried == [1, 2, 3, 4] * 2


@step
async def pack(order: str) -> str:
    await until(lambda: len(tried) >= 4 and mended)
    return order


@workflow
async def packing_and_shipping(order: str) -> list[str]:
    return list(await asyncio.gather(ship(order), pack(order)))


async def test_what_runs_beside_it_ends_first_and_another_worker_knows_that_it_has_broken(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[packing_and_shipping])
    handle = await first.start(packing_and_shipping, "A-1")
    await until(lambda: len(tried) == 4)
    assert (await first.row(handle.id)).status is Status.RUNNING
    await until_recorded(first, handle.id, 4)
    await lose(first, store)
    mended.append("the warehouse")
    second, _ = await opened(work=True, workflows=[packing_and_shipping])
    await broken(second, second.process(handle.id))
    assert tried == [1, 2, 3, 4], "no worker tries it again unasked"
    await second.process(handle.id).retry(who="anna")
    assert await second.process(handle.id).result(LIMIT) == ["A-1 shipped", "A-1"]


async def until_recorded(engine: Any, id: str, count: int) -> None:
    async with asyncio.timeout(LIMIT):
        while len(await attempts(engine, id)) < count:
            await asyncio.sleep(0)


async def test_where_it_stands_in_the_chain_survives_its_worker(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    first, store = await opened(work=True, workflows=[in_two_lives])
    handle = await first.start(in_two_lives)
    await until_recorded(first, handle.id, 2)
    await lose(first, store)
    mended.append("second life")
    second, _ = await opened(work=True, workflows=[in_two_lives])
    await second.process(handle.id).signal("go")
    with pytest.raises(ProcessFailed, match="tried 3 times"):
        await second.process(handle.id).result(LIMIT)
    assert len(alerts(caplog)) == 1, "the threshold was passed by the first worker"


@step(retry=Retry(attempts=1, then=["alert", Retry(attempts=2, backoffs=[0, 0.2], jitter=0)]))
async def twice_more() -> None:
    tried.append(attempt().number)
    raise ConnectionError("no")


@workflow
async def in_two_lives() -> None:
    await twice_more()


# -- give up, undo, queues, policies -----------------------------------------------------------------------------------


@workflow
async def trip(order: str) -> None:
    async with saga():
        await book(order)
        raise ValueError("no trip")


async def test_an_undo_at_the_end_of_its_chain_breaks_its_process_as_ever(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await engine.start(trip, "A-1")
    assert (await broken(engine, handle)).type == "UndoFailed"
    mended.append("the warehouse")
    await handle.retry(who="anna")
    with pytest.raises(ProcessFailed, match="no trip"):
        await handle.result(LIMIT)


@step(queue="dock", retry=Retry.NONE)
async def load(order: str) -> str:
    tried.append(attempt().number)
    if not mended:
        raise ConnectionError("no lorry")
    return order


@workflow
async def loading(order: str) -> str:
    return await load.options(retry=CHAIN)(order)


async def test_a_task_takes_the_chain_along_and_is_the_one_that_breaks(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[loading], queues=["dock"])
    handle = await engine.start(loading, "A-1")
    search = Search(kind="@dock", statuses=(Status.BROKEN,))
    async with asyncio.timeout(LIMIT):
        while not (tasks := await engine.list(search)):
            await asyncio.sleep(0)
    assert tried == [1, 2, 3, 4]
    assert (await handle.status()).status is Status.RUNNING
    mended.append("the lorry")
    await engine.process(tasks[0].id).retry(who="anna")
    assert await handle.result(LIMIT) == "A-1"


@step(queue="dock", retry=CHAIN)
async def unload(order: str) -> str:
    tried.append(attempt().number)
    raise ConnectionError("no lorry")


@workflow
async def unloading(order: str) -> str:
    return await unload.options(retry=Retry(attempts=3, **NOW))(order)


async def test_a_task_takes_the_retry_of_one_place_and_nothing_of_its_step_s_own_chain(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[unloading], queues=["dock"])
    with pytest.raises(ProcessFailed, match="no lorry"):
        await (await engine.start(unloading, "A-1")).result(LIMIT)
    assert tried == [1, 2, 3]


async def test_a_policy_sets_a_chain_from_outside_and_a_permanent_error_ignores_it(opened: Open) -> None:
    then = [{"attempts": 1, **NOW}, "break"]
    options = WorkerOptions(policies={"plainly.*.plain_call": Policy(attempts=1, then=then)})
    engine, _ = await opened(work=True, workflows=[plainly], options=options)
    error = await broken(engine, await engine.start(plainly, False))
    assert "tried 2 times" in str(error)
    with pytest.raises(ProcessFailed, match="tried once"):
        await (await engine.start(plainly, True)).result(LIMIT)


@step(permanent=LookupError)
async def plain_call(permanent: bool) -> None:
    raise (LookupError if permanent else ConnectionError)("no")


@workflow
async def plainly(permanent: bool) -> None:
    await plain_call(permanent)
