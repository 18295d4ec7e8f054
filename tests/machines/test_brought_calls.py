"""Calls from the worker that holds the machine: heard before they are stored, and written with their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Call, Engine, Handle, limits, receive, workflow
from perdure.errors import BadRecord, KeyConflict, PerdureError
from perdure.kernel.commit import Commit
from perdure.testing.faults import FaultyStore, Gate, Outage
from tests.machines.account import Account, done, gates
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_sealed_life import sealed


def brings(commits: Sequence[Commit]) -> bool:
    return any(commit.brings is not None for commit in commits)


def doors(store: FaultyStore) -> list[str]:
    """What the store was asked since it was last cleared."""
    return [name for name, _ in store.calls]


@pytest.fixture(autouse=True)
def _it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was called twice stays in memory for the whole test."""
    monkeypatch.setattr(limits, "MACHINE_HOLD_SECONDS", 3600.0)


async def held(engine: Engine) -> Handle[Any]:
    """An account of 2 cents, in the hands of this engine's worker, with nothing under way."""
    ann = await engine.start(Account.opened, "Ann")
    for cents in (1, 2):
        assert await ann.call(Account.deposit, 1) == cents
    return ann


def counted(engine: Engine) -> tuple[float, float]:
    """How many calls were brought, and how many of them turned away."""
    metrics = engine.metrics()
    return metrics["calls_brought"], metrics["calls_turned_away"]


async def test_a_call_and_its_answer_are_one_transaction_and_stand_there_as_if_it_had_been_sent(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    store.calls.clear()
    method = Account.deposit.options(key="april", who="Bob")
    assert await ann.call(method, 500) == 502
    assert doors(store) == ["commit"]
    message = (await engine.store.messages([(ann.id_bytes, 0)]))[-1]
    assert (message.number, message.name, message.payload, message.key) == (3, "deposit", b"[500]", "deposit\napril")
    assert b"Bob" in (message.sender or b"")
    assert [event.number for event in await ann.history() if event.message == 3] == [message.consumed_by]
    row = await engine.row(ann.id)
    assert (row.inbox, row.seen) == (3, 3)


async def test_where_another_message_came_first_the_call_is_sent_and_both_are_answered(opened: Open) -> None:
    engine, store = await opened(work=True)
    other, _ = await opened()
    ann = await held(engine)
    before = counted(engine)
    written = store.before = Gate("commit", brings)
    near = asyncio.create_task(ann.call(Account.deposit, 10))
    await asyncio.wait_for(written.reached.wait(), LIMIT)
    afar = asyncio.create_task(other.process(ann.id).call(Account.deposit, 1))
    await until_row(other, ann.id, lambda row: row.inbox == 3)
    written.open.set()
    assert await asyncio.wait_for(asyncio.gather(afar, near), LIMIT) == [3, 13]
    assert await ann.call(Account.history) == ["+1", "+1", "+1", "+10"]
    assert (before[0] + 1, before[1] + 1) == counted(engine)  # and while others send to it, none is brought to it


async def test_what_is_sent_from_here_after_a_call_that_was_brought_waits_for_it(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann, bob = await held(engine), await held(engine)
    written = store.before = Gate("commit")
    other = asyncio.create_task(bob.call(Account.deposit, 1))  # the committer writes this, and then what was sent
    await asyncio.wait_for(written.reached.wait(), LIMIT)
    call = asyncio.create_task(ann.call(Account.deposit, 10))
    await asyncio.sleep(0)
    note = asyncio.create_task(ann.signal(Account.note, "later"))
    await asyncio.sleep(0)
    written.open.set()
    await asyncio.wait_for(asyncio.gather(other, call, note), LIMIT)
    assert (await ann.call(Account.history))[2:] == ["+10", "later"]
    assert counted(engine)[1] == 0


async def test_no_call_is_brought_while_another_message_from_here_is_on_its_way(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    brought = counted(engine)[0]
    on_its_way = store.before = Gate("send")
    note = asyncio.create_task(ann.signal(Account.note, "first"))
    await asyncio.wait_for(on_its_way.reached.wait(), LIMIT)
    call = asyncio.create_task(ann.call(Account.deposit, 10))
    await asyncio.sleep(0)
    assert counted(engine) == (brought, 0)
    on_its_way.open.set()
    await asyncio.wait_for(asyncio.gather(note, call), LIMIT)
    assert (await ann.call(Account.history))[2:] == ["first", "+10"]


async def test_many_callers_of_one_machine_are_never_in_each_other_s_way(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await held(engine)
    left = iter(range(300))

    async def caller() -> None:
        for _ in left:
            await ann.call(Account.deposit, 1)

    await asyncio.gather(*(caller() for _ in range(30)))
    assert await ann.call(Account.deposit, 1) == 303
    assert counted(engine)[1] == 0


async def test_a_call_under_a_key_that_was_used_gets_the_first_answer(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await held(engine)
    once = Account.deposit.options(key="once")
    assert await ann.call(once, 1) == 3
    turned_away = counted(engine)[1]
    assert await asyncio.wait_for(ann.call(once, 1), LIMIT) == 3
    with pytest.raises(KeyConflict):
        await ann.call(once, 2)
    assert counted(engine)[1] == turned_away + 1
    assert await ann.call(Account.history) == ["+1", "+1", "+1"]


async def test_a_commit_whose_answer_was_lost_brings_the_call_once(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    outage = Outage("commit", after=True).upon(store)
    outage.away = True
    asked = asyncio.create_task(ann.call(Account.deposit, 1))
    await until(lambda: outage.failed)
    outage.away = False
    assert await asyncio.wait_for(asked, LIMIT) == 3
    assert [message.number for message in await engine.store.messages([(ann.id_bytes, 0)])] == [1, 2, 3]
    assert await ann.call(Account.history) == ["+1", "+1", "+1"]


async def test_a_caller_that_gives_up_leaves_its_call_behind(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    written = store.before = Gate("commit", brings)
    with pytest.raises(TimeoutError, match="no answer to 'deposit' within"):
        await ann.call(Account.deposit.options(timeout=0.01), 1)
    asked = asyncio.create_task(ann.call(Account.deposit, 1))
    await asyncio.sleep(0)
    asked.cancel()
    written.open.set()
    await until_row(engine, ann.id, lambda row: row.inbox >= 3)
    assert (await ann.call(Account.history))[:3] == ["+1", "+1", "+1"]


async def test_who_waits_in_vain_for_a_call_that_was_turned_away_is_told_the_whole_time(opened: Open) -> None:
    engine, store = await opened(work=True)
    other, _ = await opened()
    ann = await held(engine)
    written = store.before = Gate("commit", brings)
    asked = asyncio.create_task(ann.call(Account.deposit.options(timeout=0.25), 10))
    await asyncio.wait_for(written.reached.wait(), LIMIT)
    await other.process(ann.id).signal(Account.note, "first")
    outage = Outage("claim").upon(store)
    outage.away = True
    written.open.set()
    with pytest.raises(TimeoutError, match=r"no answer to 'deposit' within 0\.25 s; ask again with the same key"):
        await asked
    outage.away = False


async def test_a_call_turned_away_is_sent_although_its_caller_has_given_up(opened: Open) -> None:
    engine, store = await opened(work=True)
    other, _ = await opened()
    ann = await held(engine)
    written = store.before = Gate("commit", brings)
    with pytest.raises(TimeoutError):
        await ann.call(Account.deposit.options(timeout=0.01), 10)
    await other.process(ann.id).signal(Account.note, "first")
    written.open.set()
    await until_row(engine, ann.id, lambda row: row.seen == 4)
    assert await ann.call(Account.history) == ["+1", "+1", "first", "+10"]


async def test_a_process_that_is_dropped_before_its_turn_leaves_the_call_to_the_store(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await held(engine)
    asked = asyncio.create_task(ann.call(Account.deposit, 1))
    await asyncio.sleep(0)  # it is heard; the turn comes next
    scheduler = engine.worker.scheduler if engine.worker else None
    assert scheduler is not None
    instance = scheduler.instances[ann.id_bytes]
    assert instance.inbox.brought is not None
    scheduler.release(instance)
    assert await asyncio.wait_for(asked, LIMIT) == 3
    assert [message.number for message in await engine.store.messages([(ann.id_bytes, 0)])] == [1, 2, 3]


async def test_a_call_that_the_database_refuses_is_its_caller_s_trouble_and_not_the_machine_s(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)

    async def refuse(name: str, records: Any) -> None:
        if (name == "commit" and brings(records)) or (name == "send" and any(one.name == "deposit" for one in records)):
            raise BadRecord("it cannot be stored")

    store.before = refuse
    with pytest.raises(BadRecord, match="it cannot be stored"):
        await asyncio.wait_for(ann.call(Account.deposit, 1), LIMIT)
    assert await asyncio.wait_for(ann.call(Account.history), LIMIT) == ["+1", "+1"]


async def test_an_engine_that_closes_leaves_no_caller_waiting(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    outage = Outage("commit", "send").upon(store)
    outage.away = True
    asked = asyncio.create_task(ann.call(Account.deposit, 1))
    await until(lambda: outage.failed)
    await engine.close(0)
    with pytest.raises(PerdureError):
        await asyncio.wait_for(asked, LIMIT)


async def test_a_method_that_takes_steps_is_answered_when_these_are_done_without_a_query(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    store.calls.clear()
    asked = asyncio.create_task(ann.call(Account.slow, "a gate"))
    await until(lambda: done["began a gate"])
    assert "commit" in doors(store)  # the call is stored before its step begins
    gates["a gate"].set()
    assert await asyncio.wait_for(asked, LIMIT) == "a gate"
    assert set(doors(store)) <= {"commit", "beat"}


async def test_a_refusal_that_was_brought_is_raised_like_any_other(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await held(engine)
    store.calls.clear()
    with pytest.raises(PerdureError, match="withdraw was refused: Overdrawn: there is less than 9"):
        await ann.call(Account.withdraw, 9)
    assert "send" not in doors(store)


@workflow
async def clerk(questions: int) -> int:
    """Answers, with waits that keep it in hand."""
    for n in range(questions):
        question = await receive("question", Call[int])
        question.answer(question.value + n)
    return questions


async def test_a_workflow_that_waits_for_calls_is_brought_them_too(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONG_HISTORY_EVENTS", 1)
    monkeypatch.setattr(limits, "LONG_HISTORY_HOLD_SECONDS", 3600.0)
    engine, store = await opened(work=True, workflows=[clerk])
    handle = await engine.start(clerk, 6)
    assert [await handle.call("question", 10, int) for _ in range(5)] == [10, 11, 12, 13, 14]
    assert counted(engine) == (5, 0)
    store.calls.clear()
    assert await handle.call("question", 10, int) == 15
    assert await handle.result(LIMIT) == 6
    assert doors(store)[0] == "commit" and "send" not in doors(store)


async def test_what_is_brought_is_sealed_like_what_is_sent(opened: Open) -> None:
    engine, _ = await opened(work=True, codecs=sealed())
    ann = await held(engine)
    before = counted(engine)[0]
    assert await ann.call(Account.deposit, 12345) == 12347
    assert counted(engine)[0] == before + 1
    stranger, _ = await opened()
    raw = (await stranger.store.messages([(ann.id_bytes, 0)]))[-1].payload
    assert b"12345" not in bytes(raw)
    await engine.close(0)
    again, _ = await opened(work=True, codecs=sealed())
    assert await again.process(ann.id).call(Account.history) == ["+1", "+1", "+12345"]
