"""Steps that keep their arguments: where they are found later, who asks for it, and what it does not change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure import Policy, Retry, WorkerOptions, saga, step, workflow
from perdure import limits as bounds
from perdure.client.handle import Handle
from perdure.errors import ProcessFailed
from perdure.kernel.event import Event, EventType
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row
from tests.runtime.test_sealed_life import sealed

KEPT = EventType.ARGUMENTS_KEPT
fails: set[str] = set()
began: list[str] = []
names = {"suffix": ""}
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _anew() -> None:
    for memory in (fails, began, gates):
        memory.clear()


@step(keep_arguments=True, retry=Retry(attempts=2, first=0.001, jitter=0.0))
async def pay(account: str, cents: int, *, note: str = "") -> int:
    """Fails if it is told to."""
    if account in fails:
        raise ConnectionError("the bank is closed")
    return cents


@step
async def silent(account: str) -> str:
    return account


@step(keep_arguments=True)
async def halts(gate: str) -> str:
    began.append(gate)
    await gates[gate].wait()
    return gate


@step(queue="kept arguments", keep_arguments=True)
async def ship(parcel: str) -> str:
    return parcel


@step(keep_arguments=True)
async def give_back(account: str) -> None:
    """An undo."""


@step(undo=give_back)
async def take(account: str) -> None:
    """What it undoes."""


@workflow
async def bill(account: str) -> None:
    await silent(account)
    await pay(account, 5, note="rent")


@workflow
async def patient(gate: str) -> str:
    return await halts(gate)


@workflow
async def renamed(gate: str) -> str:
    return await halts(gate + names["suffix"])


@workflow
async def of_a_promise(account: str) -> int:
    return await pay(silent(account), 7)  # type: ignore[arg-type]  # a promise


@workflow
async def parcel(name: str) -> str:
    return await ship(name)


@workflow
async def taking(account: str) -> None:
    async with saga():
        await take(account)
        raise ValueError("not this one")


@workflow
async def many(texts: list[str]) -> None:
    await asyncio.gather(*(pay(text, 1) for text in texts))


@workflow
async def here_only(account: str) -> None:
    await silent.options(keep_arguments=True)(account)
    await silent(account)


async def kept(handle: Handle[Any], run: int | None = None) -> list[Event]:
    """The events of a process that keep arguments."""
    return [event for event in await handle.history(run) if event.type is KEPT]


async def test_a_step_that_keeps_its_arguments_shows_them_in_the_trace_and_another_one_does_not(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    handle = await engine.start(bill, "ann")
    await handle.result(LIMIT)
    other, paid = await handle.trace()
    assert (other.name, other.arguments) == ("silent", None)
    assert (paid.name, paid.arguments, paid.result) == ("pay", {"": ["ann", 5], "note": "rent"}, 5)
    assert paid.began is not None
    assert paid.ended is not None
    assert paid.began <= paid.ended
    (event,) = await kept(handle)
    assert (event.name, event.place, event.turn) == ("pay", "1", 0)
    assert event.digest is not None
    assert paid.digest == event.digest.hex()


async def test_they_are_written_with_the_turn_that_asks_and_cost_no_commit(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    handle = await engine.start(bill, "ann")
    await handle.result(LIMIT)
    of_silent, of_pay, paid = [event for event in await handle.history() if event.name]
    assert [one.type for one in (of_silent, of_pay, paid)] == [
        EventType.STEP_COMPLETED, KEPT, EventType.STEP_COMPLETED,
    ]  # fmt: skip
    assert (of_pay.token, of_pay.version) == (of_silent.token, of_silent.version)


async def test_they_are_known_while_the_step_runs_and_kept_once_however_often_it_is_revived(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[patient])
    handle = await first.start(patient, "a")
    await until(lambda: began)
    (one,) = await handle.trace()
    assert (one.status, one.arguments) == ("open", ["a"])
    assert one.began is not None
    await lose(first, store)
    second, _ = await opened(work=True, workflows=[patient])
    await until(lambda: len(began) == 2)
    gates["a"].set()
    there = second.process(handle.id, str)
    assert await there.result(LIMIT) == "a"
    assert len(await kept(there)) == 1


async def test_after_failed_attempts_and_in_the_run_of_a_retry_they_stand_once_in_each_run(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    fails.add("ann")
    handle = await engine.start(bill, "ann")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    fails.clear()
    await handle.retry()
    await handle.result(LIMIT)
    assert [len(await kept(handle, run)) for run in (1, 2)] == [1, 1]
    _, failed, paid = await handle.trace()
    assert (failed.status, failed.attempts, failed.arguments) == ("failed", 2, {"": ["ann", 5], "note": "rent"})
    assert (paid.run, paid.status, paid.arguments) == (2, "completed", {"": ["ann", 5], "note": "rent"})


async def test_a_run_that_keeps_the_step_keeps_its_arguments_and_a_trace_tells_them_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    handle = await engine.start(bill, "ann")
    await handle.result(LIMIT)
    await handle.restart_from("pay")
    await until_row(engine, handle.id, lambda row: row.run == 2 and row.final)
    told = [(one.run, one.name, one.arguments is None) for one in await handle.trace()]
    assert told == [(1, "silent", True), (1, "pay", False), (2, "pay", False)]
    fork = await handle.fork()
    await fork.result(LIMIT)
    assert [event.payload for event in await kept(fork)] == [b'{"":["ann",5],"note":"rent"}']


async def test_promised_arguments_are_kept_once_they_are_there(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[of_a_promise])
    handle = await engine.start(of_a_promise, "ann")
    assert await handle.result(LIMIT) == 7
    assert [event.payload for event in await kept(handle)] == [b'["ann",7]']


async def test_a_queued_step_keeps_them_with_the_process_that_asks_and_not_twice(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[parcel], queues=["kept arguments"])
    handle = await engine.start(parcel, "A-17")
    await handle.result(LIMIT)
    (one,) = await handle.trace()
    assert (one.what, one.arguments, one.result) == ("task", ["A-17"], "A-17")
    assert len(await kept(handle)) == 1
    task = engine.process(one.process or "")
    assert await kept(task) == []
    await task.remove()
    (one,) = await handle.trace()
    assert one.arguments == ["A-17"]


async def test_an_undo_keeps_its_arguments_too(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[taking])
    handle = await engine.start(taking, "ann")
    with pytest.raises(ProcessFailed, match="not this one"):
        await handle.result(LIMIT)
    told = {one.name: one.arguments for one in await handle.trace()}
    assert told == {"take": None, "give_back": ["ann"]}


async def test_one_place_of_the_code_may_keep_them(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[here_only])
    handle = await engine.start(here_only, "ann")
    await handle.result(LIMIT)
    assert [one.arguments for one in await handle.trace()] == [["ann"], None]


async def test_a_policy_keeps_them_or_does_not_whatever_the_code_says(opened: Open) -> None:
    policies = {"*.*.silent": Policy(keep_arguments=True), "bill.*.pay": Policy(keep_arguments=False)}
    engine, _ = await opened(work=True, workflows=[bill], options=WorkerOptions(policies=policies))
    handle = await engine.start(bill, "ann")
    await handle.result(LIMIT)
    assert {one.name: one.arguments for one in await handle.trace()} == {"silent": ["ann"], "pay": None}


async def test_a_policy_that_comes_later_keeps_those_of_a_step_that_is_open_then(opened: Open) -> None:
    off, on = (WorkerOptions(policies={"*.*.halts": Policy(keep_arguments=keep)}) for keep in (False, True))
    first, store = await opened(work=True, workflows=[patient], options=off)
    handle = await first.start(patient, "a")
    await until(lambda: began)
    assert await kept(handle) == []
    await lose(first, store)
    second, _ = await opened(work=True, workflows=[patient], options=on)
    await until(lambda: len(began) == 2)
    there = second.process(handle.id, str)
    assert [event.payload for event in await kept(there)] == [b'["a"]']
    gates["a"].set()
    assert await there.result(LIMIT) == "a"


async def test_a_step_that_new_code_asks_for_with_other_arguments_is_shown_with_these(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, store = await opened(work=True, workflows=[renamed])
    handle = await first.start(renamed, "a")
    await until(lambda: began)
    await lose(first, store)
    monkeypatch.setitem(names, "suffix", "b")
    second, _ = await opened(work=True, workflows=[renamed])
    await until(lambda: began == ["a", "ab"])
    there = second.process(handle.id, str)
    (one,) = await there.trace()
    assert one.arguments == ["ab"]
    gates["ab"].set()
    assert await there.result(LIMIT) == "ab"
    assert [event.payload for event in await kept(there)] == [b'["a"]', b'["ab"]']


async def test_they_are_sealed_as_payloads_are_and_who_lacks_the_key_does_not_see_them(opened: Open) -> None:
    engine, _ = await opened(work=True, codecs=sealed(), workflows=[bill])
    handle = await engine.start(bill, "ann")
    await handle.result(LIMIT)
    assert (await handle.trace())[1].arguments == {"": ["ann", 5], "note": "rent"}
    stranger, _ = await opened()
    there = stranger.process(handle.id)
    (event,) = await kept(there)
    assert b"ann" not in (event.payload or b"")
    assert event.digest is None
    assert [one.name for one in await there.trace()] == ["silent", "pay"]
    assert "unreadable" in (await there.trace())[1].arguments


async def test_one_turn_keeps_as_much_as_a_batch_holds_and_the_steps_run_all_the_same(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "KEPT_ARGUMENTS_BYTES", 40)
    engine, _ = await opened(work=True, workflows=[many])
    handle = await engine.start(many, ["a" * 20, "b" * 20, "c"])
    await handle.result(LIMIT)
    told = {one.place: one.arguments for one in await handle.trace()}
    assert sorted(map(str, told.values())) == sorted([f"['{'a' * 20}', 1]", "None", "['c', 1]"])
