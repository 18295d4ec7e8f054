"""Calls on both stores: a question to a running process is answered once, whoever asks again and whatever ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from perdure import limits
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import (
    CallRefused,
    CallUnanswered,
    InvalidInput,
    InvalidKey,
    KeyConflict,
    Overloaded,
    PayloadError,
    PayloadTooLarge,
    ProcessFailed,
    ProcessNotFound,
)
from perdure.kernel import transition
from perdure.kernel.event import ANSWERS, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import SendVerdict
from perdure.testing.faults import Outage
from tests.calls import bank
from tests.calls.bank import HOSTED, Asked, Quoted, crowd, desk, listener, mute, turned, two_faced
from tests.runtime.conftest import LIMIT, Open, until, until_row

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    bank.ran.clear()
    bank.gates.clear()
    bank.failing.clear()


async def quoted(handle: Handle[Any], cents: int, key: str | None = None) -> Quoted:
    return await handle.call("quote", Asked(cents), Quoted, key=key, timeout=LIMIT)


async def asked(engine: Engine, id: str, messages: int) -> None:
    """Wait until so many messages have come to it."""
    await until_row(engine, id, lambda row: row.inbox == messages)


async def test_the_same_key_runs_the_code_once_waits_while_it_runs_and_gets_what_it_answered(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    bank.gates[5] = asyncio.Event()
    first = asyncio.create_task(quoted(handle, 5, "k"))
    await until(lambda: bank.ran)
    second = asyncio.create_task(quoted(handle, 5, "k"))
    await until(
        lambda: engine.parts.answers.waiting == 2 and len(engine.parts.followers._waiting[handle.id_bytes]) == 2
    )
    assert not first.done() and not second.done()
    bank.gates[5].set()
    assert await first == await second == Quoted(10, 1)
    assert await quoted(handle, 5, "k") == Quoted(10, 1)
    assert bank.ran == [5]
    assert await quoted(handle, 5, "other") == Quoted(10, 2)
    assert await quoted(handle, 5) == Quoted(10, 3)
    assert (await engine.row(handle.id)).inbox == 3
    assert engine.parts.answers.waiting == 0 and not engine.parts.followers._waiting


async def test_an_answer_is_as_it_was_given_or_of_the_type_that_is_asked_for(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    assert await handle.call("quote", Asked(5), key="k", timeout=LIMIT) == {"cents": 10, "number": 1}
    assert await engine.process(handle.id).call("quote", {"cents": 5}, Quoted, key="k", who="Ann") == Quoted(10, 1)
    with pytest.raises(PayloadError):
        await handle.call("quote", Asked(5), int, key="k")


async def test_a_call_is_refused_by_an_exception_which_is_its_answer_for_ever(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    for _ in range(2):
        with pytest.raises(CallRefused, match="quote was refused: ValueError: less than nothing") as refused:
            await quoted(handle, -1, "k")
        assert (refused.value.type, refused.value.detail) == ("ValueError", "less than nothing")
    assert await quoted(handle, 1) == Quoted(2, 1)


async def test_a_call_that_does_not_fit_is_refused_and_the_code_never_sees_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    with pytest.raises(CallRefused, match="PayloadError: call 'quote' cannot be read as Asked"):
        await handle.call("quote", "many", timeout=LIMIT)
    assert await quoted(handle, 1) == Quoted(2, 1)


async def test_code_that_only_receives_answers_none_and_a_signal_may_come_where_a_call_is_received(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(listener)
    await handle.signal("word", 1)
    assert await handle.call("word", 2, timeout=LIMIT) is None
    with pytest.raises(CallRefused, match="PayloadError"):
        await handle.call("word", "x", timeout=LIMIT)
    assert await handle.call("word", 0, timeout=LIMIT) is None
    assert await handle.result(LIMIT) == [1, 2]
    other = await engine.start(desk)
    await other.signal("quote", Asked(3))
    assert await quoted(other, 4) == Quoted(8, 2)
    assert [event.name for event in await other.history() if event.type in ANSWERS] == ["quote:2"]


async def test_whoever_asks_what_has_ended_or_ends_without_an_answer_is_told(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk.options(key="d"))
    assert await quoted(handle, 5, "early") == Quoted(10, 1)
    with pytest.raises(CallUnanswered, match="desk d has completed and has not answered 'quote'"):
        await quoted(handle, 0)
    with pytest.raises(CallUnanswered, match="desk d has completed"):
        await quoted(handle, 6)
    assert await quoted(handle, 5, "early") == Quoted(10, 1)
    failing = await engine.start(desk)
    bank.failing.add(7)
    with pytest.raises(CallUnanswered, match="has failed"):
        await quoted(failing, 7)
    with pytest.raises(ProcessNotFound):
        await engine.process(b"x" * 16).call("quote")


@pytest.mark.parametrize(("verb", "told"), [("terminate", "was cancelled"), ("cancel", "was cancelled")])
async def test_whoever_waits_for_an_answer_hears_that_the_process_was_ended(opened: Open, verb: str, told: str) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(mute)
    call = asyncio.create_task(handle.call("quote", 1, key="k"))
    await until_row(engine, handle.id, lambda row: row.seen == 1)
    await getattr(handle, verb)(who="Ann")
    with pytest.raises(CallUnanswered, match=told):
        async with asyncio.timeout(LIMIT):
            await call


async def test_a_broken_process_says_so_and_answers_once_it_is_repaired(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[two_faced])
    handle = await engine.start(two_faced)
    assert await handle.call("quote", key="k", timeout=LIMIT) == 1  # WorkflowMisuse comes with the second answer
    with pytest.raises(ProcessFailed, match="was answered before"):
        await handle.result(LIMIT)
    other = await engine.start(two_faced)
    row = await engine.row(other.id)
    await engine.close(0)
    client, _ = await opened(workflows=HOSTED)
    row = await client.row(row.id)
    broken = transition.broken(row, Failure("Sunk", ""), now=await client.store.now(), idle_at=row.created_at + 10**12)
    await client.store.commit([broken])
    with pytest.raises(CallUnanswered, match=r"is broken and has not answered 'quote'\. Once it is repaired"):
        await client.process(row.id).call("quote", key="k", timeout=LIMIT)
    await client.process(row.id).retry(who="Ann")
    await client.close(0)
    worker, _ = await opened(work=True, workflows=[two_faced])
    assert await worker.process(row.id).call("quote", key="k", timeout=LIMIT) == 1


async def test_a_question_that_nobody_heard_in_time_is_still_there_and_its_key_gets_the_answer(opened: Open) -> None:
    client, _ = await opened(workflows=HOSTED)
    handle = await client.start(desk)
    with pytest.raises(TimeoutError, match="no answer to 'quote' within"):
        await handle.call("quote", Asked(5), key="k", timeout=0.01)
    with pytest.raises(TimeoutError):
        await handle.call("quote", Asked(5), key="k", timeout=0)
    await client.close(0)
    engine, _ = await opened(work=True, workflows=HOSTED)
    assert await engine.process(handle.id).call("quote", Asked(5), Quoted, key="k", timeout=LIMIT) == Quoted(10, 1)
    assert (await engine.row(handle.id)).inbox == 1


async def test_who_asks_while_the_database_is_away_waits_for_no_longer_and_the_question_is_sent_after_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_SECONDS", 0.1)
    client, store = await opened()
    worker, _ = await opened(work=True, workflows=HOSTED)
    handle = client.process((await worker.start(desk)).id)
    outage = Outage("send").upon(store)
    outage.away = True
    for patience in (0, 0.2):
        asking = handle.call("quote", Asked(5), key="k", timeout=patience)
        with pytest.raises(TimeoutError, match="no answer to 'quote' within"):
            await asyncio.wait_for(asking, LIMIT)
    outage.away = False
    assert await handle.call("quote", Asked(5), Quoted, key="k", timeout=LIMIT) == Quoted(10, 1)
    assert (await worker.row(handle.id)).inbox == 1


async def test_an_answer_that_is_there_is_given_also_to_who_does_not_wait(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    answer = await quoted(handle, 5, "k")
    client, _ = await opened()
    assert await client.process(handle.id).call("quote", Asked(5), Quoted, key="k", timeout=0) == answer


async def test_a_failed_process_that_is_retried_answers_what_it_had_heard(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    bank.failing.add(7)
    assert await quoted(handle, 6, "before") == Quoted(12, 1)
    with pytest.raises(CallUnanswered):
        await quoted(handle, 7, "k")
    await handle.retry(who="Ann")
    assert await quoted(handle, 7, "k") == Quoted(14, 2)
    assert await quoted(handle, 6, "before") == Quoted(12, 1)
    answers = [event.name for event in await handle.history() if event.type in ANSWERS]
    assert answers == ["quote:1", "quote:2"]
    assert bank.ran == [6, 7, 7]


async def test_a_restart_answers_what_nobody_had_answered_and_changes_no_answer(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    assert await quoted(handle, 6, "first") == Quoted(12, 1)
    await handle.signal("quote", Asked(0))
    await handle.result(LIMIT)
    with pytest.raises(CallUnanswered):
        await quoted(handle, 7, "late")
    await handle.restart_from("price", who="Ann")  # its answer is given anew, and the first one counts
    await engine.process(handle.id).result(timeout=LIMIT)
    assert await quoted(handle, 6, "first") == Quoted(12, 1)
    assert [e.name for e in await handle.history() if e.type is EventType.CALL_ANSWERED] == ["quote:1"]


async def test_the_next_run_of_a_process_that_continues_as_new_hears_what_was_not_answered(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(turned, 2)
    for number in range(1, 4):
        assert await handle.call("quote", number, key=f"k{number}", timeout=LIMIT) == -number
    await until_row(engine, handle.id, lambda row: row.run == 10)
    for number in range(1, 4):  # from whichever run it is
        assert await handle.call("quote", number, key=f"k{number}", timeout=LIMIT) == -number
    assert (await engine.row(handle.id)).inbox == 3


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_client_without_work_is_answered_by_whoever_has_the_process(opened: Open, workers: int) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    if ":memory:" in engine.store.url:
        pytest.skip("one store at a time on this database")
    client, _ = await opened(workflows=HOSTED)
    for _ in range(workers - 1):
        await opened(work=True, workflows=HOSTED)
    handle = await client.start(desk)
    answers = await asyncio.gather(*(quoted(handle, cents, f"k{cents}") for cents in range(1, 40)))
    assert [answer.cents for answer in answers] == [2 * cents for cents in range(1, 40)]
    assert sorted(answer.number for answer in answers) == list(range(1, 40))
    assert sorted(bank.ran) == list(range(1, 40))


async def test_a_key_belongs_to_one_question_and_to_no_signal(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    assert await handle.signal("quote", Asked(1), key="k") is SendVerdict.DELIVERED
    assert await quoted(handle, 5, "k") == Quoted(10, 2)
    with pytest.raises(KeyConflict, match="the key belongs to a call 'quote' with another value"):
        await quoted(handle, 6, "k")


async def test_what_is_wrong_with_a_call_is_refused_at_the_door(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    for name, options in (("", {}), ("quote", {"key": ""}), ("quote", {"key": "a\nb"})):
        with pytest.raises(InvalidKey):
            await handle.call(name, **options)
    with pytest.raises(InvalidInput):
        await handle.call("quote", timeout=-1)
    with pytest.raises(PayloadError):
        await handle.call("quote", object())
    with pytest.raises(PayloadTooLarge):
        await handle.call("quote", "x" * (limits.PAYLOAD_BYTES + 1))
    monkeypatch.setattr(limits, "WAITING_CALLS", 1)
    waiting = asyncio.create_task(handle.call("other"))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="1 calls wait"):
        await quoted(handle, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await quoted(handle, 1) == Quoted(2, 1)


@pytest.mark.parametrize(("callers", "size"), [(1_100, 0), (20, 2**20)])
async def test_however_many_ask_at_once_no_commit_holds_more_answers_than_it_can(
    opened: Open, callers: int, size: int
) -> None:
    client, _ = await opened(workflows=HOSTED)
    handle = await client.start(crowd)
    calls = [handle.call("quote", size + n % 7) for n in range(callers)]
    gathered = asyncio.gather(*calls)
    await asked(client, handle.id, callers)
    engine, _ = await opened(work=True, workflows=HOSTED)
    answers = await asyncio.wait_for(gathered, LIMIT)
    assert [len(answer) for answer in answers] == [size + n % 7 for n in range(callers)]
    turns: dict[int, int] = {}
    events = await engine.process(handle.id).history(limit=10_000)
    for event in events:
        if event.type in ANSWERS:
            turns[event.at] = turns.get(event.at, 0) + 1
    assert max(turns.values()) <= (1_000 if size == 0 else 8)
    assert sum(turns.values()) == callers


async def test_a_replay_answers_nothing_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HOSTED)
    handle = await engine.start(desk)
    for cents in (1, 2, 3):
        await quoted(handle, cents, f"k{cents}")
    await engine.close(0)
    other, _ = await opened(work=True, workflows=HOSTED)
    assert await other.process(handle.id).call("quote", Asked(4), Quoted, timeout=LIMIT) == Quoted(8, 4)
    events = await other.process(handle.id).history()
    assert [event.name for event in events if event.type in ANSWERS] == [f"quote:{n}" for n in (1, 2, 3, 4)]
    assert bank.ran == [1, 2, 3, 4]
