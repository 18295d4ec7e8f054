"""Forks on both stores: a new process with the past of another one, which stays as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, InvalidInput, KeyConflict, ProcessCancelled, ProcessFailed, ProcessNotFound
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.store.base import Search
from perdure.turns.mailbox import Call
from perdure.turns.publication import publish
from perdure.turns.renewal import continue_as_new
from perdure.turns.verbs import new_uuid, random_source
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import FLOWS, act, done, errand, failing, forget, gates, keys, sound, waiting


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


async def told(handle: Handle[Any], word: str) -> Handle[Any]:
    await handle.signal("go", word)
    await handle.result(LIMIT)
    return handle


async def test_a_fork_keeps_what_was_before_its_place_and_runs_the_rest_under_keys_of_its_own(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    old = await told(await waiting(engine), "on")
    before = await engine.row(old.id), await old.history()
    fork = await old.fork("act:2", who="anna", why="the last one was wrong")
    assert (fork.created, fork.kind, fork.id != old.id) == (True, "errand", True)
    assert await fork.result(LIMIT) == "first 1, on, last 2"
    assert len(keys["first"]) == 1 and len(set(keys["last"])) == 2
    assert fork.id in keys["last"][1]
    opened_by, *_ = await fork.history()
    assert opened_by.type is EventType.RUN_OPENED
    assert all(text in (opened_by.payload or b"") for text in (old.id.encode(), b"anna", b"the last one was wrong"))
    assert (await engine.row(old.id), await old.history()) == before
    await sound(engine, store, fork)


async def test_a_fork_of_a_process_that_waits_shares_what_was_and_hears_its_own_signals(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    old = await waiting(engine)
    fork = await old.fork()
    await told(fork, "here")
    await told(old, "there")
    assert (await fork.result(), await old.result()) == ("first 1, here, last 1", "first 1, there, last 2")
    assert len(set(keys["last"])) == 2
    assert [await sound(engine, store, one) for one in (old, fork)] == [Status.COMPLETED] * 2


async def test_a_signal_received_after_the_place_is_given_to_the_fork_too(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    old = await told(await waiting(engine), "on")
    fork = await old.fork("act:1")
    assert await fork.result(LIMIT) == "first 2, on, last 2"
    await sound(engine, store, fork)
    other = await old.fork(2)  # the event that has received the signal
    assert await other.result(LIMIT) == "first 1, on, last 3"
    anew = await old.fork(1)
    assert await anew.result(LIMIT) == "first 3, on, last 4"
    assert await (await anew.fork(1)).result(LIMIT) == "first 4, on, last 5"


async def test_a_failed_process_is_forked_before_the_step_that_failed(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    failing.add("last")
    old = await waiting(engine)
    await old.signal("go", "on")
    with pytest.raises(ProcessFailed):
        await old.result(LIMIT)
    failing.clear()
    fork = await old.fork()
    assert await fork.result(LIMIT) == "first 1, on, last 2"
    assert len(set(keys["last"])) == 2
    assert await sound(engine, store, old) is Status.FAILED


async def test_a_step_in_flight_runs_in_both_under_two_keys(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    gates["last"] = asyncio.Event()
    old = await waiting(engine)
    await old.signal("go", "on")
    await until(lambda: "last" in done)
    fork = await old.fork()
    await until(lambda: done.count("last") == 2)
    gates["last"].set()
    assert {await old.result(LIMIT), await fork.result(LIMIT)} <= {"first 1, on, last 1", "first 1, on, last 2"}
    assert len(set(keys["last"])) == 2 and "last stopped" not in done


async def test_a_fork_with_a_key_is_made_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    old = await told(await engine.start(errand.options(key="A-1")), "on")
    first, second = [await old.fork("act:2", key="A-1 again") for _ in range(2)]
    assert (first.created, second.created, first.id) == (True, False, second.id)
    assert second.key == "A-1 again"
    for at, key in (("act:2", "A-1"), ("act:1", "A-1 again")):
        with pytest.raises(KeyConflict, match="use another key"):
            await old.fork(at, key=key)
    assert await engine.count(Search(kind="errand")) == {"errand": {"completed": 2}}


async def test_a_fork_is_restarted_retried_and_forked_like_any_process(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    old = await told(await waiting(engine), "on")
    failing.add("last")
    fork = await old.fork("act:2")
    with pytest.raises(ProcessFailed):
        await fork.result(LIMIT)
    failing.clear()
    await fork.retry()
    assert await fork.result(LIMIT) == "first 1, on, last 3"
    assert len(set(keys["last"])) == 2  # the retry has the fork's own key
    again = await fork.fork("act:2")
    assert await again.result(LIMIT) == "first 1, on, last 4"
    assert len(set(keys["last"])) == 3
    await fork.restart()
    assert await fork.result(LIMIT) == "first 2, on, last 5"
    assert [await sound(engine, store, one) for one in (old, fork, again)] == [Status.COMPLETED] * 3


@workflow
async def lottery() -> list[Any]:
    first = [str(new_uuid()), random_source().random()]
    drawn = await act(f"draw {first}")
    tasks = {asyncio.ensure_future(act(name)) for name in "abcdefgh"}
    done, _ = await asyncio.wait(tasks)
    order = [await act(f"seen {task.result()}") for task in done]  # in the order of a set
    told = await receive("go", str)
    later = [str(new_uuid()), random_source().random()]
    return [first, drawn, order, told, *later, await act(f"bet {later}"), await act("last")]


async def test_what_was_drawn_before_the_place_is_shared_and_what_comes_after_is_not(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[lottery])
    old = await engine.start(lottery)
    await old.signal("go", "on")
    theirs = await old.result(LIMIT)
    received = next(e.number for e in await old.history() if e.type is EventType.MESSAGE_RECEIVED)
    failing.add("last")
    fork = await old.fork(received)
    with pytest.raises(ProcessFailed):
        await fork.result(LIMIT)
    await engine.close(0)
    failing.clear()
    engine, store = await opened(work=True, workflows=[lottery])
    again = engine.process(fork.id)
    await again.retry()
    ours = await again.result(LIMIT)
    assert ours[:4] == theirs[:4]
    assert ours[4] != theirs[4] and ours[5] != theirs[5]
    assert ours[6] == f"bet {ours[4:6]} 1"  # and a replay draws it again
    assert len(keys["last"]) == 3 and len(set(keys["last"])) == 2
    await sound(engine, store, again)


@workflow
async def parent() -> str:
    before = await errand.child()
    task = asyncio.ensure_future(errand.child())
    return f"{before}; {await act('between')}; {await task}"


async def test_children_that_have_answered_count_and_others_are_started_anew(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[parent, errand])

    async def child(count: int) -> str:
        async with asyncio.timeout(LIMIT):
            while len(found := [one.id for one in await engine.list(Search(kind="errand"))]) < count:
                await asyncio.sleep(0)
        return found[0]

    old = await engine.start(parent)
    await engine.process(await child(1)).signal("go", "one")
    second = await child(2)
    await until(lambda: "between" in done)
    await until_row(engine, old.id, lambda row: row.owner is None and row.events >= 4)
    fork = await old.fork("act")
    third = await child(3)
    for one, word in ((second, "two"), (third, "three")):
        await engine.process(one).signal("go", word)
    assert (await engine.row(third)).parent == fork.id_bytes
    assert [", two, " in await old.result(LIMIT), ", three, " in await fork.result(LIMIT)] == [True, True]
    assert (await old.result()).split(";")[0] == (await fork.result()).split(";")[0]
    assert keys["between"][0] != keys["between"][1]
    await sound(engine, store, fork)


@workflow
async def shop(month: int) -> str:
    publish("month", month)
    call = await receive("price", Call[int])
    call.answer(7)
    if await receive("over", str) == "not yet":
        continue_as_new(month + 1)
    return f"{month}: {await act('closing')}"


async def test_answers_to_calls_and_an_input_of_its_own_run_are_shared(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[shop])
    old = await engine.start(shop, 1)
    assert await old.call("price", 0, int, timeout=LIMIT) == 7
    await old.signal("over", "not yet")
    await old.signal("noise", 1)
    assert await old.call("price", 1, int, timeout=LIMIT) == 7
    await old.signal("over", "yes")
    assert await old.result(LIMIT) == "2: closing 1"
    fork = await old.fork("act")
    assert await fork.result(LIMIT) == "2: closing 2"
    assert await fork.value("month", int) == 2
    await sound(engine, store, fork)
    row, letters = await engine.row(fork.id), await store.messages([(fork.id_bytes, 0)])
    assert [one.name for one in letters] == ["price", "over", "noise"]  # not what the run before has received
    assert row.inbox == 3


@step
async def refund(order: str) -> None:
    keys.setdefault("refund", []).append(attempt().idempotency_key)


@step(undo=refund)
async def charge(order: str) -> str:
    keys.setdefault("charge", []).append(attempt().idempotency_key)
    return order


@workflow
async def sale() -> str:
    await charge("A-1")
    await receive("go", str)
    return str(await act("last"))


async def sold(engine: Engine) -> Handle[Any]:
    handle = await engine.start(sale)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    return handle


async def test_no_effect_is_undone_by_two_processes(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[sale])
    old = await sold(engine)
    with pytest.raises(IllegalMove, match=r"owes an undo of charge:1: both would undo it. End it first"):
        await old.fork()
    early = await old.fork("charge")  # its charge is one of its own, and so is the undo of that
    await until_row(engine, early.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    await early.cancel()
    with pytest.raises(ProcessCancelled):
        await early.result(LIMIT)
    assert len(keys["charge"]) == 2 and len(keys["refund"]) == 1 and early.id in keys["refund"][0]
    cancelled = next(e.number for e in await early.history() if e.type is EventType.MESSAGE_RECEIVED)
    with pytest.raises(IllegalMove, match="charge:1 would count as done"):
        await early.fork(cancelled)
    failing.add("last")
    await old.terminate()  # nothing of it will be undone: the fork owes that now
    fork = await old.fork()
    await fork.signal("go", "on")
    with pytest.raises(ProcessFailed):
        await fork.result(LIMIT)
    assert len(keys["charge"]) == 2 and len(keys["refund"]) == 2 and fork.id in keys["refund"][1]
    await sound(engine, store, fork)


@step(queue="tills")
async def queued() -> str:
    return await act("queued")


@workflow
async def patient() -> str:
    return await queued()


async def test_what_cannot_be_forked_is_refused(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[*FLOWS, patient])
    old = await waiting(engine)
    for at, text in (("last", "no step 'last' has been answered"), (2, "no event 2"), (0, "no event 0")):
        with pytest.raises(IllegalMove, match=text):
            await old.fork(at)
    for wrong in (True, 1.5, b"act"):
        with pytest.raises(InvalidInput, match="Give the number of an event, or the name of a step"):
            await old.fork(wrong)  # type: ignore[arg-type]
    with pytest.raises(ProcessNotFound):
        await engine.process(bytes(16)).fork()
    await (await engine.start(patient)).result(LIMIT)
    [task] = await engine.list(Search(kind="@tills"))
    with pytest.raises(IllegalMove, match="cannot fork a queued step; fork the process that has asked for it"):
        await engine.process(task.id).fork()


async def test_a_fork_of_a_process_that_has_not_begun_is_another_start(opened: Open) -> None:
    client, store = await opened(workflows=FLOWS)
    old = await client.start(errand.options(attributes={"customer": "Ann"}, priority=2))
    await old.signal("go", "on")
    fork = await old.fork()
    await sound(client, store, fork)
    await opened(work=True, workflows=FLOWS)
    assert {await one.result(LIMIT) for one in (old, fork)} == {"first 1, on, last 1", "first 2, on, last 2"}
    row = await client.row(fork.id)
    assert (row.attributes, row.priority) == ((await client.row(old.id)).attributes, 2)


@workflow(name="tour", version="1")
async def tour() -> str:
    return f"{await act('first')}, {await act('old end')}"


@workflow(name="tour", version="2")
async def new_tour() -> str:
    return f"{await act('first')}, {await act('new end')}"


async def test_a_fork_goes_on_with_another_version_of_the_code(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[tour, new_tour])
    old = await engine.start(tour)
    assert await old.result(LIMIT) == "first 1, old end 1"
    assert await (await old.fork("act:2")).result(LIMIT) == "first 1, old end 2"
    assert await (await old.fork("act:2", version="2")).result(LIMIT) == "first 1, new end 1"
