"""A machine that is called often from the worker that holds it: nothing is read, neither calls nor answers."""

from __future__ import annotations

import asyncio

import pytest

from perdure import limits, machine
from perdure.client import answers, calls
from perdure.testing.faults import Gate
from tests.machines.account import Account
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def test_our_own_worker_hears_calls_and_tells_answers_without_a_query(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    for cents in (1, 2):  # the second one comes so soon that the machine stays in memory
        assert await ann.call(Account.deposit, 1) == cents
    store.calls.clear()
    claims = engine.metrics()["claims"]
    for cents in range(3, 13):
        assert await ann.call(Account.deposit, 1) == cents
    doors = [name for name, _ in store.calls]
    assert (doors.count("send"), doors.count("commit")) == (0, 10)  # each comes with the commit of its turn
    assert "history" not in doors and engine.metrics()["claims"] == claims


async def test_the_answers_of_our_own_worker_are_told_and_not_looked_up(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    for cents in (1, 2):
        assert await ann.call(Account.deposit, 1) == cents
    store.calls.clear()
    sums = await asyncio.gather(*(ann.call(Account.deposit, 1) for _ in range(30)))
    assert sorted(sums) == list(range(3, 33))
    assert "history" not in [name for name, _ in store.calls]


async def test_calls_from_two_engines_are_answered_in_the_order_in_which_they_came(opened: Open) -> None:
    engine, _ = await opened(work=True)
    other, _ = await opened()
    ann = await engine.start(Account.opened, "Ann")
    afar = other.process(ann.id)
    sums = await asyncio.gather(*(one.call(Account.deposit, 1) for _ in range(20) for one in (ann, afar)))
    assert sorted(sums) == list(range(1, 41))
    assert sums[::2] == sorted(sums[::2]) and sums[1::2] == sorted(sums[1::2])


async def test_calls_under_one_key_are_handed_over_once(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    asked = [ann.call(Account.deposit.options(key=f"{n % 5}"), 1) for n in range(10)]
    assert sorted(await asyncio.gather(*asked)) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


async def test_all_callers_under_one_key_are_told_at_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "HELD_POLL_SECONDS", 3600.0)
    monkeypatch.setattr(limits, "MACHINE_HOLD_SECONDS", 3600.0)
    engine, store = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    for cents in (1, 2):
        assert await ann.call(Account.deposit, 1) == cents
    assert engine.worker is not None
    engine.worker.scheduler.bringing.crowded(ann.id_bytes)  # so that all three are sent
    written = store.before = Gate("commit")
    asked = [asyncio.create_task(ann.call(Account.deposit.options(key="one"), 1)) for _ in range(3)]
    await asyncio.wait_for(written.reached.wait(), LIMIT)
    await until(lambda: len(engine.parts.results._waiters.get(ann.id_bytes, ())) == 3)  # none looks any more
    written.open.set()
    assert await asyncio.wait_for(asyncio.gather(*asked), LIMIT) == [3, 3, 3]


async def test_an_answer_that_was_written_while_its_process_was_let_go_is_found(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "HELD_POLL_SECONDS", 0.0)
    monkeypatch.setattr(answers, "HELD_POLL_SECONDS", 0.05)
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert engine.worker is not None
    monkeypatch.setattr(engine.worker.scheduler.events, "answered", lambda id, events: None)
    monkeypatch.setattr(engine.parts.local, "holds", lambda id: True)
    assert await asyncio.wait_for(ann.call(Account.deposit, 1), LIMIT) == 1


async def test_what_others_have_sent_before_is_heard_before_what_was_sent_from_here(opened: Open) -> None:
    engine, store = await opened(work=True)
    other, _ = await opened()
    ann = await engine.start(Account.opened, "Ann")
    for cents in (1, 2):
        assert await ann.call(Account.deposit, 1) == cents
    unread = store.before = Gate("messages")
    afar = asyncio.create_task(other.process(ann.id).call(Account.deposit, 1))
    await asyncio.wait_for(unread.reached.wait(), LIMIT)
    await until_row(other, ann.id, lambda row: row.inbox == 3)
    assert engine.worker is not None
    engine.worker.scheduler.bringing.crowded(ann.id_bytes)  # so that it is sent
    near = asyncio.create_task(ann.call(Account.deposit, 1))
    await until(lambda: engine.parts.answers.open)
    unread.open.set()
    assert (await afar, await near) == (3, 4)


class Alarm(machine.Machine):
    """A machine with a timer that is far away."""

    rings: int = 0

    @machine.init
    def made(self) -> None:
        machine.schedule(100_000)

    @machine.call
    def press(self) -> int:
        self.rings += 1
        return self.rings

    @machine.timer
    def ring(self) -> None:
        self.rings = 0


async def test_a_machine_that_was_called_often_is_let_go_after_a_while_however_far_its_timer_is(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MACHINE_HOLD_SECONDS", 0.2)
    engine, _ = await opened(work=True, workflows=[Alarm.made])
    handle = await engine.start(Alarm.made)
    for number in range(1, 6):
        assert await handle.call(Alarm.press) == number
    row = await until_row(engine, handle.id, lambda row: row.owner is None)
    assert row.due_at - row.created_at == pytest.approx(100_000_000_000, abs=10_000_000)
