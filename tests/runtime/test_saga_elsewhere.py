"""Sagas that reach into other processes: undos that wait in queues, and children with undos of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessBroken, ProcessCancelled, ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from perdure.turns.saga import saga
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.kin import sound, statuses, until_statuses

done: list[str] = []
keys: dict[str, list[str]] = {}
closed: list[str] = []
gates: dict[str, asyncio.Event] = {}
let_go = threading.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for memory in (done, keys, closed, gates):
        memory.clear()
    let_go.clear()


@step(queue="back office", retry=Retry(attempts=2, first=0.0))
async def refund(what: str, result: str | None) -> None:
    done.append(f"refund {what} {result}")
    keys.setdefault(what, []).append(attempt().idempotency_key)
    keys.setdefault(f"undoes {what}", []).append(attempt().undoes or "")
    if what in gates:
        await gates[what].wait()
    if what in closed:
        raise ConnectionError("the office is closed")


@step(undo=refund, retry=Retry.NONE)
async def pay(what: str) -> str:
    done.append(f"pay {what}")
    keys[f"of {what}"] = [attempt().idempotency_key]
    return f"receipt {what}"


@step(undo=refund, queue="counter", retry=Retry.NONE)
async def pay_there(what: str) -> str:
    done.append(f"pay {what}")
    return f"receipt {what}"


@step(undo=refund, retry=Retry.NONE)
def pay_slowly(what: str) -> str:
    done.append(f"pay {what}")
    let_go.wait(LIMIT)
    done.append(f"paid {what}")
    return what


@workflow
async def basket(one_by_one: bool) -> None:
    async with saga(sequential=one_by_one):
        await pay("a")
        await asyncio.gather(pay("b"), pay_there("c"))
        raise ValueError("sold out")


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_undos_that_wait_in_a_queue_run_there_with_all_they_need_to_know(opened: Open, elsewhere: bool) -> None:
    shop, _ = await opened(
        work=True, workflows=[basket], queues=["counter"] if elsewhere else ["counter", "back office"]
    )
    if elsewhere:
        await opened(work=True, workflows=[], queues=["back office"])
    handle = await shop.start(basket, False)
    with pytest.raises(ProcessFailed, match="compensated: ") as error:
        await handle.result(LIMIT)
    assert sorted(error.value.undone) == ["pay:1", "pay:2", "pay_there:1"] and error.value.undone[-1] == "pay:1"
    assert sorted(done[3:5]) == ["refund b receipt b", "refund c receipt c"]
    assert done[5:] == ["refund a receipt a"]
    assert keys["undoes a"] == keys["of a"] and keys["a"] == [f"{handle.id}/1/refund:undo/pay:1"]
    await sound(shop)


async def test_undos_in_a_queue_run_one_at_a_time_if_the_saga_says_so(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[basket], queues=["counter", "back office"])
    for what in ("b", "c"):
        gates[what] = asyncio.Event()
    handle = await engine.start(basket, True)
    await until(lambda: len(done) == 4)
    first = done[3].split()[1]
    assert await statuses(engine, "@back office") == {"running": 1}
    gates[first].set()
    await until(lambda: len(done) == 5)
    gates["c" if first == "b" else "b"].set()
    with pytest.raises(ProcessFailed, match="compensated: "):
        await handle.result(LIMIT)
    assert done[-1] == "refund a receipt a"
    await sound(engine)


async def test_a_queued_undo_that_keeps_failing_parks_its_process_and_a_retry_tries_it_again_under_its_key(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=[basket], queues=["counter", "back office"])
    closed.append("a")
    handle = await engine.start(basket, False)
    with pytest.raises(ProcessBroken) as error:
        await handle.result(LIMIT)
    assert error.value.owed == ("pay:1",)
    assert "'refund' could not undo pay:1, tried 2 times: ConnectionError: the office is closed" in error.value.detail
    await sound(engine)
    closed.clear()
    await handle.retry(why="it has opened")
    with pytest.raises(ProcessFailed, match=r"compensated: .*pay:1"):
        await handle.result(LIMIT)
    assert len(keys["a"]) == 3 and len(set(keys["a"])) == 1
    assert await statuses(engine, "@back office") == {"completed": 3, "failed": 1}
    await sound(engine)


@workflow
async def slow_basket() -> None:
    await pay_slowly("a")


async def test_rule_23_a_queued_undo_is_not_asked_for_before_a_cancelled_step_has_left_its_thread(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=[slow_basket], queues=["back office"])
    handle = await engine.start(slow_basket)
    await until(lambda: done)
    await handle.cancel()
    await until_row(engine, handle.id, lambda row: row.seen == 1)
    assert await statuses(engine, "@back office") == {}
    let_go.set()
    with pytest.raises(ProcessCancelled, match="compensated: pay_slowly:1"):
        await handle.result(LIMIT)
    assert done == ["pay a", "paid a", "refund a None"]
    await sound(engine)


async def test_rule_23_a_terminate_lists_what_a_queued_undo_has_left_and_asks_its_task_to_end(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[basket], queues=["counter"])
    handle = await engine.start(basket, False)
    await until_statuses(engine, "@back office", running=2)
    await handle.terminate(who="anna")
    with pytest.raises(ProcessCancelled) as error:
        await handle.result(LIMIT)
    assert sorted(error.value.owed) == ["pay:1", "pay:2", "pay_there:1"]
    office, _ = await opened(work=True, workflows=[], queues=["back office"])
    async with asyncio.timeout(LIMIT):
        while await statuses(office, "@back office") != {"cancelled": 2}:
            await asyncio.sleep(0)
    assert not [deed for deed in done if deed.startswith("refund")]
    await sound(engine)


async def test_an_undo_in_a_queue_that_a_person_skips_counts_as_given_up(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[basket], queues=["counter", "back office"])
    closed.append("a")
    handle = await engine.start(basket, False)
    with pytest.raises(ProcessBroken):
        await handle.result(LIMIT)
    await handle.skip("refund:undo/pay:1", who="anna", why="paid back in cash")
    with pytest.raises(ProcessFailed, match="compensated"):
        await handle.result(LIMIT)
    assert EventType.SKIPPED in [event.type for event in await handle.history()]
    await sound(engine)


# -- children ----------------------------------------------------------------------------------------------------


@step
async def send_back(parcel: str, result: str | None) -> None:
    done.append(f"send back {parcel} {result}")


@step(retry=Retry.NONE)
async def carry(parcel: str) -> str:
    done.append(f"carry {parcel}")
    try:
        if parcel in gates:
            await gates[parcel].wait()
    except asyncio.CancelledError:
        done.append(f"drop {parcel}")
        raise
    if parcel in closed:
        raise ConnectionError(parcel)
    return f"{parcel} there"


@workflow
async def delivery(parcel: str, fast: bool = False) -> str:
    return await carry(parcel)


deliver = delivery.child.options(undo=send_back)


@workflow
async def order() -> None:
    await deliver("hat")
    await asyncio.gather(deliver("book", fast=True), pay("b"))
    raise ValueError("no")


async def test_a_completed_child_is_undone_with_what_it_was_asked_and_has_answered(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, delivery], queues=["back office"])
    handle = await engine.start(order)
    with pytest.raises(ProcessFailed, match=r"compensated: .*delivery:1") as error:
        await handle.result(LIMIT)
    assert set(error.value.undone) == {"delivery:1", "delivery:2", "pay:1"}
    assert done[-1] == "send back hat hat there"
    assert set(done[3:5]) == {"send back book book there", "refund b receipt b"}
    await sound(engine)


@workflow
async def one_delivery() -> str:
    try:
        async with saga():
            return await deliver("hat")
    except ProcessFailed:
        return "kept"


async def test_rule_23_a_child_that_has_failed_is_undone_too_for_nobody_knows_what_it_has_done(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_delivery, delivery])
    closed.append("hat")
    assert await (await engine.start(one_delivery)).result(LIMIT) == "kept"
    assert done == ["carry hat", "send back hat None"]
    await sound(engine)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_rule_23_a_child_that_still_runs_is_asked_to_end_before_it_is_undone(
    opened: Open, elsewhere: bool
) -> None:
    flows = [one_delivery, delivery]
    engine, _ = await opened(work=True, workflows=[one_delivery] if elsewhere else flows)
    if elsewhere:
        await opened(work=True, workflows=[delivery])
    gates["hat"] = asyncio.Event()
    handle = await engine.start(one_delivery)
    await until(lambda: done)
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert done == ["carry hat", "drop hat", "send back hat None"]
    [child] = await engine.list(Search(kind="delivery"))
    assert child.status is Status.CANCELLED
    await sound(engine)


async def test_a_child_that_ends_well_with_its_parent_is_not_undone(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_delivery, delivery])
    assert await (await engine.start(one_delivery)).result(LIMIT) == "hat there"
    assert done == ["carry hat"]
