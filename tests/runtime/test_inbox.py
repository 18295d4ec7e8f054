"""The inbox on both stores: signals wait there until the code receives them, at the cost of what arrives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.engine import Engine
from perdure.errors import InboxFull
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, until_row


@workflow
async def deaf(name: str) -> str:
    return str(await receive(name))


@workflow
async def at_once(what: str) -> str:
    return what


@step(retry=Retry.NONE)
async def note(what: str) -> str:
    return what


async def asleep(engine: Engine, id: str, seen: int = 0) -> Any:
    """The row of a process that sleeps and has heard so many messages."""
    return await until_row(engine, id, lambda row: row.owner is None and row.seen >= seen and row.opened_at)


async def sound(engine: Engine, id: str) -> None:
    row = await engine.row(id)
    events = await engine.store.history(row.id, row.run, limit=100_000)
    messages = await engine.store.messages([(row.id, 0)])
    assert unsound(row, events, messages, await engine.store.now()) == []


async def test_any_number_of_signals_of_2_mib_to_one_process_stop_nobody_else(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[deaf, at_once])
    handle = await engine.start(deaf, "go")
    text = "x" * (2 * 1024 * 1024 - 100)
    sent = refused = 0
    said = ""
    for _ in range(90):
        try:
            await handle.signal("noise", text)
            sent += 1
        except InboxFull as error:
            refused += 1
            said = str(error)
    assert (sent, refused) == (32, 58)
    assert "send it again when the process has received some" in said
    assert await (await engine.start(at_once, "neighbour")).result(LIMIT) == "neighbour"
    other, _ = await opened(work=True, workflows=[deaf, at_once])
    assert await (await other.start(at_once, "neighbour")).result(LIMIT) == "neighbour"
    await engine.process(handle.id).cancel()  # orders are not signals
    await until_row(engine, handle.id, lambda row: row.status is Status.CANCELLED)


async def test_a_full_inbox_refuses_calls_first_signals_and_those_in_the_callers_transaction_too(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INBOX_RECORDS", 2)
    engine, _ = await opened(workflows=[deaf])
    handle = await engine.start(deaf.options(key="one"), "go")
    await handle.signal("noise")
    await handle.signal("noise")
    with pytest.raises(InboxFull):
        await engine.process(handle.id).call("noise", timeout=LIMIT)
    with pytest.raises(InboxFull):
        await engine.start(deaf.options(key="one", signal=("noise", 1)), "go")
    assert (await engine.row(handle.id)).inbox == 2


async def test_a_thousand_signals_that_nobody_awaits_are_no_history_and_have_nobody_held(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HISTORY_HOLD_EVENTS", 20)
    engine, _ = await opened(work=True, workflows=[deaf])
    handle = await engine.start(deaf, "go")
    for first in range(0, 1000, 100):
        await asyncio.gather(*(handle.signal("noise", number) for number in range(first, first + 100)))
        await asleep(engine, handle.id, first + 100)
    row = await engine.row(handle.id)
    assert (row.status, row.events, row.inbox) == (Status.RUNNING, 0, 1000)
    await handle.signal("go", "on")
    assert await handle.result(LIMIT) == "on"
    assert [event.type.name for event in await engine.process(handle.id).history()] == ["MESSAGE_RECEIVED", "COMPLETED"]
    await sound(engine, handle.id)


@workflow
async def pairs(left: int, heard: list[int]) -> list[int]:
    heard = [*heard, await receive("number", int), await receive("number", int)]
    if left > 1:
        continue_as_new(left - 1, heard)
    return heard


async def test_400_signals_over_200_runs_cost_what_arrives_and_each_is_received_once(opened: Open) -> None:
    engine, _ = await opened(workflows=[pairs])
    handle = await engine.start(pairs, 200, [])
    for first in range(0, 400, 100):
        await asyncio.gather(*(handle.signal("number", number) for number in range(first, first + 100)))
    read = 0

    class Counting:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def messages(self, *wants: Any, **narrow: Any) -> Any:
            nonlocal read
            found = await self.inner.messages(*wants, **narrow)
            read += len(found)
            return found

        async def claim(self, claim: Any) -> Any:
            nonlocal read
            answer = await self.inner.claim(claim)
            read += sum(len(one.messages) for one in answer.claimed)
            return answer

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    machine, told = await opened(work=True, workflows=[pairs])
    told.store = Counting(told.store)
    assert sorted(await handle.result(3 * LIMIT)) == list(range(400))
    events = sum(
        [
            (await engine.row(handle.id)).events,
            *[len(await engine.process(handle.id).history(run)) for run in range(1, 200)],
        ]
    )
    assert events <= 400 + 200 + 2
    assert 400 <= read <= 8 * (400 + 200)
    await sound(machine, handle.id)


@workflow
async def two_kinds() -> list[Any]:
    found: list[Any] = [await receive("go")]
    while True:
        try:
            found.append(await receive("number", int, timeout=0))
        except TimeoutError:
            break
    await note("between")
    found.append(await receive("go"))
    try:
        found.append(await receive("number", int, timeout=0))
    except TimeoutError:
        found.append("none")
    set_state(found)
    return [*found, await receive("end")]


async def test_no_time_to_wait_is_enough_for_what_has_come_long_ago_and_a_replay_sees_the_same(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAILBOX_BYTES", 4)
    engine, _ = await opened(workflows=[two_kinds])
    handle = await engine.start(two_kinds)
    for number in range(30):
        await handle.signal("number", number)
    for word in ("go", "go", "end"):
        worker, _ = await opened(work=True, workflows=[two_kinds])  # each takes it up anew, and replays it
        await asleep(engine, handle.id, (await engine.row(handle.id)).inbox)
        await handle.signal(word, word)
        inbox = (await engine.row(handle.id)).inbox
        await until_row(engine, handle.id, lambda row, inbox=inbox: row.owner is None and row.seen >= inbox)  # type: ignore[misc]
        await sound(engine, handle.id)
        await worker.close()
    assert await handle.result(LIMIT) == ["go", *range(30), "go", "none", "end"]
    await sound(engine, handle.id)


@workflow
async def in_order(names: list[str]) -> list[Any]:
    return [await receive(name) for name in names]


async def test_letters_are_received_in_the_order_of_their_name_whatever_was_kept_in_memory(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAILBOX_BYTES", 3)
    monkeypatch.setattr(limits, "FIRST_RECORDS", 1)
    engine, _ = await opened(work=True, workflows=[in_order])
    handle = await engine.start(in_order, ["go", *["number"] * 20, "go", *["number"] * 5])
    for number in range(10):
        await handle.signal("number", number)
    await asleep(engine, handle.id, 10)
    await asyncio.gather(*(handle.signal("number", number) for number in range(10, 15)), handle.signal("go", "a"))
    for number in range(15, 22):
        await handle.signal("number", number)
    await asleep(engine, handle.id, 23)
    await handle.signal("go", "b")
    for number in range(22, 25):
        await handle.signal("number", number)
    heard = await handle.result(LIMIT)
    numbers = [one for one in heard if isinstance(one, int)]
    assert sorted(numbers) == list(range(25))
    assert (heard[0], heard[21], numbers[:10], numbers[15:]) == ("a", "b", list(range(10)), list(range(15, 25)))
    await sound(engine, handle.id)
