"""The life of a process: from its start to its end, through steps, timers, signals and commands, on both stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.engine import Engine
from perdure.errors import (
    IllegalMove,
    KeyConflict,
    Permanent,
    ProcessBroken,
    ProcessCancelled,
    ProcessFailed,
    ProcessNotFound,
    StepError,
)
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import until

LIMIT = 20.0
"""Seconds after which a test has failed; nothing waits for this long when all is well."""

SOON = Retry(attempts=3, first=0.01, jitter=0.0)


@dataclass
class Approval:
    by: str
    cents: int


class Shop:
    """What the steps of these tests did, in order."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.keys: list[str] = []


shop = Shop()


@pytest.fixture(autouse=True)
def _fresh_shop() -> None:
    shop.done.clear()
    shop.keys.clear()


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    async with Engine(store_url, work=True) as engine:
        yield engine


async def names(engine: Engine, id: str) -> list[str]:
    return [event.type.name for event in await engine.process(id).history()]


@step
async def charge(order: str, cents: int) -> str:
    shop.done.append(("charge", order, cents))
    return f"receipt {order}"


@step
def pack(order: str) -> str:
    shop.done.append(("pack", order, threading.current_thread() is threading.main_thread()))
    return f"parcel {order}"


@workflow
async def order(order_id: str, cents: int) -> str:
    receipt = await charge(order_id, cents)
    await asyncio.sleep(0.01)
    parcel = await pack(order_id)
    return f"{receipt}, {parcel}"


async def test_a_process_runs_its_steps_and_gives_its_result(engine: Engine) -> None:
    handle = await engine.start(order.options(key="order/A-1"), "A-1", 1299)
    assert handle.created
    assert await handle.result(LIMIT) == "receipt A-1, parcel A-1"
    assert shop.done == [("charge", "A-1", 1299), ("pack", "A-1", False)]
    assert await names(engine, handle.id) == ["STEP_COMPLETED", "TIMER_FIRED", "STEP_COMPLETED", "COMPLETED"]


async def test_a_second_start_with_the_same_key_changes_nothing_and_says_so(engine: Engine) -> None:
    first = await engine.start(order.options(key="A-1"), "A-1", 1)
    second = await engine.start(order.options(key="A-1"), "A-1", 1)
    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert await second.result(LIMIT) == await first.result(LIMIT)
    assert shop.done.count(("charge", "A-1", 1)) == 1


async def test_rule_24_a_key_with_another_input_is_refused(engine: Engine) -> None:
    await engine.start(order.options(key="A-1"), "A-1", 1)
    with pytest.raises(KeyConflict, match="another input"):
        await engine.start(order.options(key="A-1"), "A-1", 2)


async def test_many_starts_in_one_call_are_answered_one_by_one(engine: Engine) -> None:
    handles = await engine.start_many(order, [(f"B-{n}", n) for n in range(50)], keys=[f"B-{n}" for n in range(50)])
    results = await engine.results(handles, LIMIT)
    assert results == [f"receipt B-{n}, parcel B-{n}" for n in range(50)]
    assert len({handle.id for handle in handles}) == 50


@step(retry=SOON)
async def flaky(fails: int) -> int:
    shop.keys.append(attempt().idempotency_key)
    if attempt().number <= fails:
        raise ConnectionError(f"attempt {attempt().number}")
    return attempt().number


@workflow
async def retrying(fails: int) -> int:
    return await flaky(fails)


async def test_every_attempt_has_the_same_key_and_failed_attempts_are_events(engine: Engine) -> None:
    handle = await engine.start(retrying, 2)
    assert await handle.result(LIMIT) == 3
    assert len(shop.keys) == 3
    assert set(shop.keys) == {f"{handle.id}/1/flaky:1"}
    assert await names(engine, handle.id) == ["ATTEMPT_FAILED", "ATTEMPT_FAILED", "STEP_COMPLETED", "COMPLETED"]


async def test_attempts_count_executions_and_the_last_failure_reaches_the_workflow(engine: Engine) -> None:
    handle = await engine.start(retrying, 9)
    with pytest.raises(ProcessFailed, match="attempt 3") as failed:
        await handle.result(LIMIT)
    assert failed.value.type == "StepError"
    assert len(shop.keys) == 3


@step(retry=SOON)
async def refusing() -> None:
    shop.done.append("refusing")
    raise Permanent("the card is stolen")


@workflow
async def refused() -> str:
    try:
        await refusing()
    except StepError as error:
        return f"{error.step} {error.type} {error.attempts}"
    return "never"


async def test_a_permanent_error_is_not_tried_again(engine: Engine) -> None:
    handle = await engine.start(refused)
    assert await handle.result(LIMIT) == "refusing Permanent 1"
    assert shop.done == ["refusing"]


@step(timeout=0.02, retry=Retry.NONE)
async def hanging(gate: str) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        shop.done.append("cancelled")
        return "too late"
    return "never"


@workflow
async def timed() -> str:
    try:
        return str(await hanging("x"))
    except TimeoutError as error:
        return type(error).__name__


async def test_a_step_is_cancelled_at_its_deadline_and_silent_after_it(engine: Engine) -> None:
    handle = await engine.start(timed)
    assert await handle.result(LIMIT) == "StepTimeout"
    await until(lambda: engine.metrics()["late_results"])
    assert shop.done == ["cancelled"]
    assert engine.metrics()["late_results"] == 1
    assert await names(engine, handle.id) == ["STEP_FAILED", "COMPLETED"]


@workflow
async def approved() -> str:
    set_state({"stage": "waiting"})
    approval = await receive("approval", Approval, timeout=30)
    return f"{approval.by} {approval.cents}"


async def test_a_signal_reaches_a_process_that_waits_for_it(engine: Engine) -> None:
    handle = await engine.start(approved)
    status = await handle.status()
    assert (status.status, status.mover, status.state) == (Status.RUNNING, "message", {"stage": "waiting"})
    assert "approval" in status.waiting
    assert await handle.signal("approval", Approval("anna", 5)) is SendVerdict.DELIVERED
    assert await handle.result(LIMIT) == "anna 5"


async def test_who_waits_for_a_result_in_vain_hears_what_has_not_ended_and_where_to_look(engine: Engine) -> None:
    handle = await engine.start(approved)
    with pytest.raises(TimeoutError) as caught:
        await handle.result(timeout=0.01)
    text = f"{handle.id} has not ended within 0.01 s, and goes on; see `perdure explain {handle.id}`"
    assert str(caught.value) == f"process {text}"


async def test_a_signal_with_a_key_counts_once(engine: Engine) -> None:
    handle = await engine.start(approved)
    assert await handle.signal("other", 1, key="k") is SendVerdict.DELIVERED
    assert await handle.signal("other", 2, key="k") is SendVerdict.DUPLICATE
    await handle.signal("approval", Approval("bert", 6))
    assert await handle.result(LIMIT) == "bert 6"
    assert (await names(engine, handle.id)).count("MESSAGE_RECEIVED") == 1  # nobody has received the other one


async def test_a_signal_to_a_finished_process_is_recorded_and_answered(engine: Engine) -> None:
    handle = await engine.start(retrying, 0)
    await handle.result(LIMIT)
    assert await handle.signal("late") is SendVerdict.FINISHED
    with pytest.raises(ProcessNotFound):
        await engine.process("01890000-0000-7000-8000-000000000000").signal("x")


@step
async def refund(order: str) -> str:
    shop.done.append(("refund", order))
    return "refunded"


@workflow
async def cancellable(order_id: str) -> str:
    await charge(order_id, 1)
    try:
        await receive("never")
    finally:
        await refund(order_id)
    return "never"


async def test_cancelling_runs_the_clean_up_with_its_steps(engine: Engine) -> None:
    handle = await engine.start(cancellable, "C-1")
    await handle.cancel(who="anna", why="changed her mind")
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert shop.done == [("charge", "C-1", 1), ("refund", "C-1")]


async def test_rule_22_terminating_runs_no_clean_up(engine: Engine) -> None:
    handle = await engine.start(cancellable, "C-2")
    await handle.terminate(who="anna", why="now")
    with pytest.raises(ProcessCancelled, match="anna because: now"):
        await handle.result(LIMIT)
    assert ("refund", "C-2") not in shop.done
    with pytest.raises(IllegalMove):
        await handle.terminate()


bank = {"open": False}


@step(retry=Retry.NONE)
async def pay() -> str:
    shop.keys.append(attempt().idempotency_key)
    if not bank["open"]:
        raise ConnectionError("the bank is closed")
    return "paid"


@workflow
async def paying() -> str:
    await charge("D", 1)
    await pay()
    await charge("E", 1)
    return "done"


async def test_rule_21_retry_goes_on_from_the_last_good_event_under_the_old_key(engine: Engine) -> None:
    bank["open"] = False
    handle = await engine.start(paying)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    bank["open"] = True
    await handle.retry(who="anna", why="the bank is open again")
    assert await handle.result(LIMIT) == "done"
    assert shop.done == [("charge", "D", 1), ("charge", "E", 1)]
    assert shop.keys == [f"{handle.id}/1/pay:1"] * 2
    status = await handle.status()
    assert (status.run, status.status) == (2, Status.COMPLETED)
    assert (await names(engine, handle.id))[:2] == ["RUN_OPENED", "STEP_COMPLETED"]
    old = [event.type.name for event in await engine.process(handle.id).history(1)]
    assert old == ["STEP_COMPLETED", "STEP_FAILED", "FAILED"]


code = {"second": "charge"}


@workflow
async def changing() -> str:
    await charge("F", 1)
    if code["second"] == "charge":
        await charge("G", 1)
    else:
        await pack("G")
    await receive("go")
    return code["second"]


async def test_a_history_that_does_not_fit_the_code_breaks_with_both_sides_shown(store_url: str) -> None:
    async with Engine(store_url, work=True, options=WorkerOptions(cached=0)) as engine:
        code["second"] = "charge"
        handle = await engine.start(changing)
        while (await handle.status()).mover != "message":
            await asyncio.sleep(0)
        code["second"] = "pack"
        await handle.signal("go")
        with pytest.raises(ProcessBroken, match=r"charge.*pack"):
            await handle.result(LIMIT)
        status = await handle.status()
        assert (status.status, status.mover) == (Status.BROKEN, "person")
        code["second"] = "charge"
        await handle.retry(who="anna")
        assert await handle.result(LIMIT) == "charge"


@workflow
async def endless() -> None:
    await receive("never")


async def test_a_process_over_its_deadline_fails_without_a_turn(engine: Engine) -> None:
    handle = await engine.start(endless.options(deadline=0.05))
    with pytest.raises(ProcessFailed, match="deadline"):
        await handle.result(LIMIT)
    assert (await names(engine, handle.id))[-1] == "EXPIRED"


async def test_a_timer_that_is_far_away_costs_no_memory(engine: Engine) -> None:
    @workflow
    async def sleeper() -> None:
        await asyncio.sleep(3600)

    handle = await engine.start(sleeper)
    assert engine.metrics()["in_hand"] == 0
    assert (await handle.status()).mover == "timer"


async def test_a_client_only_engine_starts_what_another_worker_runs(store_url: str) -> None:
    async with Engine(store_url, migrate=True) as client:
        handle = await client.start(order, "H-1", 5)
        assert (await handle.status()).mover == "worker"
        assert shop.done == []
        async with Engine(store_url, work=True, workflows=[order]) as worker:
            assert await handle.result(LIMIT) == "receipt H-1, parcel H-1"
            assert worker.metrics()["claims"] >= 1


gate = asyncio.Event()


@step
async def gated(n: int) -> int:
    shop.done.append(("gated", n))
    await gate.wait()
    return n


@workflow
async def two_gates() -> int:
    return await gated(1) + await gated(2)


async def test_a_graceful_stop_finishes_the_step_in_flight_and_hands_the_rest_back(store_url: str) -> None:
    global gate
    gate = asyncio.Event()
    async with Engine(store_url, work=True, workflows=[two_gates]) as first:
        handle = await first.start(two_gates)
        while ("gated", 1) not in shop.done:
            await asyncio.sleep(0)
        closing = asyncio.create_task(first.close())
        await asyncio.sleep(0)
        gate.set()
        await closing
    assert shop.done == [("gated", 1)]
    async with Engine(store_url, work=True, workflows=[two_gates]) as second:
        assert await second.process(handle.id).result(timeout=LIMIT) == 3
        assert second.metrics().get("takeovers", 0) == 0
    assert shop.done == [("gated", 1), ("gated", 2)]
