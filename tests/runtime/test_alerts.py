"""Alerts: what a person should know of is told once, in the log and to the program's own function, on both stores."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure import Alert, Breaker, Engine, Permanent, Retry, saga, step, workflow
from perdure.errors import ProcessBroken, ProcessFailed
from tests.runtime.conftest import LIMIT, Open, until

ONCE = Retry.NONE
broken_things: set[str] = set()
ran: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    broken_things.clear()
    ran.clear()


class Refused(Permanent):
    pass


@step(retry=ONCE)
async def reserve() -> str:
    ran.append("reserve")
    return "seat 7"


@step(retry=Retry(attempts=9, first=0.001))
async def pay() -> str:
    ran.append("pay")
    if "card" in broken_things:
        raise Permanent("the card is stolen")
    return "paid"


@workflow
async def buying() -> str:
    return f"{await reserve()}, {await pay()}"


@step(retry=ONCE, raises=Refused)
async def ask() -> None:
    raise Refused("no")


@workflow
async def asking() -> str:
    try:
        await ask()
    except Refused:
        return "refused"
    return "given"


@step(retry=ONCE)
async def give_back() -> None:
    raise ConnectionError("the hotel is away")


@step(retry=ONCE, undo=give_back)
async def book() -> None:
    pass


@workflow
async def travelling() -> None:
    async with saga():
        await book()
        raise ValueError("no flight")


@step(retry=Retry(attempts=1, then=["alert", "break"]))
async def ship() -> None:
    raise ConnectionError("the warehouse is away")


@workflow
async def shipping() -> None:
    await ship()


@step(at_most_once=True, timeout=0.05)
async def transfer() -> None:
    await asyncio.Event().wait()


@workflow
async def transferring() -> None:
    await transfer()


bank = Breaker("bank", failures=2, within=60, open_for=60)


@step(breaker=bank, retry=Retry(attempts=5, first=0.001))
async def charge() -> None:
    raise ConnectionError("the bank is away")


@workflow
async def charging() -> None:
    await charge()


ALL = [asking, buying, charging, shipping, transferring, travelling]


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == "perdure.alert"]


async def ends(handle: Any, how: type[Exception]) -> None:
    with pytest.raises(how):
        await handle.result(LIMIT)


async def test_a_permanent_error_is_told_once_and_only_that_step_runs_again_when_a_person_has_mended_it(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=ALL, on_alert=told.append)
    broken_things.add("card")
    handle = await engine.start(buying.options(key="B-1"))
    await ends(handle, ProcessFailed)
    [alert] = told
    assert (alert.kind, alert.process_id, alert.process_key) == ("step", handle.id, "B-1")
    assert (alert.step, alert.attempt, alert.error, alert.detail) == ("pay", 1, "Permanent", "the card is stolen")
    [record] = records(caplog)
    assert record.getMessage().endswith(
        "has failed by an error that is raised as permanent: Permanent: the card is stolen"
    )
    assert (record.alert, record.step, record.process_id) == ("step", "pay", handle.id)  # type: ignore[attr-defined]
    assert engine.metrics()["alerts"] == 1
    broken_things.clear()
    await handle.retry(who="ana")
    assert await handle.result(LIMIT) == "seat 7, paid"
    assert ran == ["reserve", "pay", "pay"] and len(told) == 1


async def test_an_answer_that_the_workflow_reckons_with_is_no_alert(opened: Open) -> None:
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=ALL, on_alert=told.append)
    assert await (await engine.start(asking)).result(LIMIT) == "refused"
    assert told == [] and engine.metrics()["alerts"] == 0


async def test_an_undo_that_has_failed_for_good_is_told_once_with_its_process_and_all_that_is_left(
    opened: Open,
) -> None:
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=ALL, on_alert=told.append)
    handle = await engine.start(travelling)
    await ends(handle, ProcessBroken)
    await until(lambda: told)
    [alert] = told
    assert (alert.kind, alert.process_id, alert.error) == ("undo", handle.id, "UndoFailed")
    assert "could not undo book" in alert.detail and "Left: book:1" in alert.detail


async def test_a_threshold_and_then_the_broken_process_are_two_facts(opened: Open) -> None:
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=ALL, on_alert=told.append)
    handle = await engine.start(shipping)
    await ends(handle, ProcessBroken)
    await until(lambda: len(told) == 2)
    assert [(one.kind, one.process_id, one.step) for one in told] == [
        ("threshold", handle.id, "ship"), ("broken", handle.id, None),
    ]  # fmt: skip
    assert len({one.id for one in told}) == 2
    await handle.retry(who="ana")
    await until(lambda: len(told) == 4)
    assert len({one.id for one in told}) == 4, "after a person's retry they are facts of their own"


async def test_a_step_of_which_nobody_knows_whether_it_was_done_is_told(opened: Open) -> None:
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=ALL, on_alert=told.append)
    handle = await engine.start(transferring)
    await ends(handle, ProcessFailed)
    assert [(one.kind, one.step) for one in told] == [("unknown", "transfer")]


async def test_a_breaker_that_opens_is_told_once_over_all_workers(opened: Open) -> None:
    told: list[Alert] = []
    engines = [(await opened(work=True, workflows=ALL, on_alert=told.append))[0] for _ in range(2)]
    for engine in engines:
        for _ in range(3):
            await engine.start(charging)
    await until(lambda: told)
    await until(lambda: sum(engine.metrics()["attempts_barred"] for engine in engines) >= 6)
    [alert] = told
    assert (alert.kind, alert.process_id) == ("breaker", None)
    assert alert.text.startswith("breaker bank is open")


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_function_that_raises_harms_nothing(
    opened: Open, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    called: list[Alert] = []

    def fails(alert: Alert) -> None:
        called.append(alert)
        raise RuntimeError("the pager is away")

    async def fails_later(alert: Alert) -> None:
        await asyncio.sleep(0)
        fails(alert)

    engine, _ = await opened(work=True, workflows=ALL, on_alert=fails_later if asynchronous else fails)
    broken_things.add("card")
    handle = await engine.start(buying)
    await ends(handle, ProcessFailed)
    await until(lambda: any("on_alert has raised" in one.getMessage() for one in records(caplog)))
    assert len(called) == 1
    broken_things.clear()
    await handle.retry()
    assert await handle.result(LIMIT) == "seat 7, paid"


async def test_an_engine_that_is_closed_waits_for_a_function_that_is_being_told(opened: Open) -> None:
    told, began, goes_on = list[str](), asyncio.Event(), asyncio.Event()

    async def pager(alert: Alert) -> None:
        began.set()
        await goes_on.wait()
        await engine.store.now()  # it may use the engine
        told.append(alert.kind)

    engine, _ = await opened(work=True, workflows=ALL, on_alert=pager)
    broken_things.add("card")
    await ends(await engine.start(buying), ProcessFailed)
    await began.wait()
    worker = engine.worker
    assert worker is not None
    closing = asyncio.create_task(engine.close())
    async with asyncio.timeout(LIMIT):
        while await asyncio.shield(worker.store.workers()):
            pass
    goes_on.set()
    await closing
    assert told == ["step"]


@pytest.mark.parametrize("hurried", [False, True])
async def test_a_function_that_takes_longer_than_a_stop_is_cut_off_and_that_is_logged(
    opened: Open, caplog: pytest.LogCaptureFixture, hurried: bool
) -> None:
    ended, began = list[BaseException](), asyncio.Event()

    async def hangs(alert: Alert) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            ended.append(error)
            raise

    engine, _ = await opened(work=True, workflows=ALL, on_alert=hangs)
    broken_things.add("card")
    await ends(await engine.start(buying), ProcessFailed)
    await began.wait()
    if hurried:
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        await engine.close(0)
        await closing
    else:
        await engine.close(0)
    assert [type(one) for one in ended] == [asyncio.CancelledError]
    [cut] = [one for one in caplog.records if "cut off" in one.getMessage()]
    assert cut.levelname == "ERROR" and "step:" in cut.getMessage()


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(Exception, match="on_alert"):
        Engine("sqlite:///:memory:", on_alert="ana@example.org")  # type: ignore[arg-type]
