"""A machine: calls in the order of their arrival, each once, and fields that are as the last method left them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure import Engine, Handle, WorkerOptions, limits, machine
from perdure.errors import CallRefused, CallUnanswered, InvalidInput
from perdure.kernel.process import Status
from tests.machines.account import Account, done, gates
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def test_calls_are_answered_and_the_fields_are_kept(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann", first=10)
    assert await ann.call(Account.deposit, 500) == 510
    assert await ann.call(Account.withdraw, amount=10) == 500
    await ann.signal(Account.note, "thanks")
    assert await ann.call(Account.history) == ["+500", "-10", "thanks"]
    view = await ann.status()
    assert view.state == {"owner": "opened for Ann", "balance": 500, "entries": ["+500", "-10", "thanks"], "months": 0}
    await ann.signal(Account.close)
    assert await ann.result(LIMIT) == 500
    with pytest.raises(CallUnanswered):
        await ann.call(Account.deposit, 1)


async def test_a_refused_call_leaves_the_fields_as_they_were(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    with pytest.raises(CallRefused, match="there is less than 7") as refused:
        await ann.call(Account.withdraw, 7)
    assert refused.value.type == "Overdrawn"
    assert await ann.call(Account.history) == []
    assert await ann.call(Account.deposit, 1) == 1


async def test_a_call_that_does_not_fit_is_refused_where_it_is_made_or_by_the_machine(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    with pytest.raises(InvalidInput, match="deposit"):
        await ann.call(Account.deposit, 1, 2)  # type: ignore[call-arg]
    with pytest.raises(CallRefused, match="amount"):
        await ann.call("deposit", ["much"])
    assert await ann.call("deposit", [5]) == 5


async def test_one_call_after_another_in_the_order_in_which_they_came(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    first = asyncio.create_task(ann.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    others = []
    for n in range(5):
        others.append(asyncio.create_task(ann.call(Account.deposit, n)))
        await ann.signal(Account.note, f"note {n}")
    gates["a"].set()
    assert await first == "a"
    await asyncio.gather(*others)
    entries = await ann.call(Account.history)
    assert entries[0] == "a"
    assert [entry for entry in entries if entry.startswith("note")] == [f"note {n}" for n in range(5)]
    assert sorted(entries[1:]) == sorted([f"+{n}" for n in range(5)] + [f"note {n}" for n in range(5)])


async def test_a_key_makes_a_call_count_once(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    again = Account.deposit.options(key="t-1")
    assert [await ann.call(again, 5), await ann.call(again, 5), await ann.call(Account.deposit, 1)] == [5, 5, 6]


async def test_what_has_ended_is_not_run_again_by_another_worker_and_what_was_under_way_goes_on(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 500) == 500
    with pytest.raises(CallRefused):
        await ann.call(Account.withdraw, 501)
    client, _ = await opened()
    handle = client.process(ann.id)
    slow = asyncio.create_task(handle.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    later = asyncio.create_task(handle.call(Account.deposit, 7))
    await engine.close(0)
    gates["a"].set()
    await opened(work=True)
    assert await asyncio.wait_for(slow, LIMIT) == "a"
    assert await asyncio.wait_for(later, LIMIT) == 507
    assert await handle.call(Account.history) == ["+500", "a", "+7"]
    assert (done["opened for Ann"], done["drawn 501"], done["began a"], done["a"]) == (1, 1, 2, 1)


async def busy(opened: Open) -> tuple[Engine, Engine, Handle[Any], asyncio.Task[str]]:
    """A worker, a client of its own, and its handle to an account that waits for a gate, with the call that does."""
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    client, _ = await opened()
    handle = client.process(ann.id)
    slow = asyncio.create_task(handle.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    return engine, client, handle, slow


@pytest.mark.parametrize("waits_first", [False, True], ids=["it waits", "the call waits"])
async def test_a_method_that_is_run_again_finds_its_timers_and_its_order(opened: Open, waits_first: bool) -> None:
    """The machine waits for the call, or the call for the machine: both replays wait for it."""
    engine, client, handle, slow = await busy(opened)
    if not waits_first:
        gates["a"].set()
        await slow
    twice = asyncio.create_task(handle.call(Account.twice, "b"))
    await until_row(client, handle.id, lambda row: row.inbox == 2)
    gates["a"].set()
    await until(lambda: done["began b"])
    await engine.close(0)
    gates["b"].set()
    await opened(work=True)
    assert await asyncio.wait_for(twice, LIMIT)
    assert [done[f"b {n}{side}"] for n in range(6) for side in "xy"] == [1] * 12
    assert (await handle.status()).status is Status.RUNNING


async def test_more_calls_than_one_commit_answers_are_answered_by_several_and_a_replay_does_alike(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PUBLISHED_RECORDS", 2)
    engine, client, handle, slow = await busy(opened)
    calls = []
    for n in range(7):
        calls.append(asyncio.create_task(handle.call(Account.deposit, n)))
        await until_row(client, handle.id, lambda row, count=n + 2: row.inbox == count)
    last = asyncio.create_task(handle.call(Account.slow, "b"))
    await until_row(client, handle.id, lambda row: row.inbox == 9)
    gates["a"].set()
    await slow
    await asyncio.gather(*calls)
    await until(lambda: done["began b"])
    await engine.close(0)
    gates["b"].set()
    await opened(work=True)
    assert await asyncio.wait_for(last, LIMIT) == "b"
    assert await handle.call(Account.history) == ["a", *[f"+{n}" for n in range(7)], "b"]


async def test_letters_that_wait_in_the_store_are_received_by_their_numbers(opened: Open) -> None:
    client, _ = await opened()
    ann = await client.start(Account.opened, "Ann")
    await ann.signal(Account.note, "one")
    call = asyncio.create_task(ann.call(Account.deposit, 2))
    await until_row(client, ann.id, lambda row: row.inbox == 2)
    await ann.signal(Account.note, "three")
    await opened(work=True)
    assert await call == 2
    assert await ann.call(Account.history) == ["one", "+2", "three"]


async def test_letters_that_were_left_in_the_store_come_in_their_turn(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mailbox in memory holds one letter here: later ones of its name stay in the store, before those of others."""
    monkeypatch.setattr(limits, "MAILBOX_BYTES", 1)
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    slow = asyncio.create_task(ann.call(Account.slow, "a"))
    await until(lambda: done["began a"])
    wanted, calls = ["a"], []
    for n, kind in enumerate("nnndnddn"):
        wanted.append(f"note {n}" if kind == "n" else f"+{n}")
        if kind == "n":
            await ann.signal(Account.note, f"note {n}")
        else:
            calls.append(asyncio.create_task(ann.call(Account.deposit, n)))
        await until_row(engine, ann.id, lambda row, count=n + 2: row.inbox >= count)
    gates["a"].set()
    assert await slow == "a"
    await asyncio.gather(*calls)
    assert await ann.call(Account.history) == wanted


async def test_calls_from_elsewhere_that_reach_a_waiting_machine_together_are_all_answered(opened: Open) -> None:
    engine, _ = await opened(work=True)
    client, _ = await opened()
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 1) == 1
    afar = client.process(ann.id)
    calls = [afar.call(method, 1) for _ in range(5) for method in (Account.deposit, Account.withdraw)]
    assert await asyncio.wait_for(asyncio.gather(*calls), LIMIT) == [2, 1] * 5


async def test_a_machine_that_is_called_very_much_at_once_has_a_short_history_too(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLDED_RECORDS", 20)
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    sums = await asyncio.gather(*(ann.call(Account.deposit, 1) for _ in range(100)))
    assert sorted(sums) == list(range(1, 101))
    row = await engine.row(ann.id)
    assert row.run > 5 and row.events < 30


async def test_an_old_machine_has_a_short_history(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOLDED_TURNS", 5)
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    for n in range(23):
        assert await ann.call(Account.deposit, 1) == n + 1
    row = await engine.row(ann.id)
    assert row.run > 3 and row.events < 20
    again = Account.deposit.options(key="once")
    assert await ann.call(again, 1) == 24
    for _ in range(12):
        await ann.call(Account.deposit, 1)
    assert await ann.call(again, 1) == 24
    await engine.close(0)
    await opened(work=True)
    client, _ = await opened()
    assert await client.process(ann.id).call(Account.deposit, 1) == 37
    assert done["opened for Ann"] == 1


class Appointment(machine.Machine):
    """A time in Berlin, and a number that may have a fraction."""

    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    hours: float = 0.0

    @machine.init
    def made(self) -> None:
        self.at = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
        self.hours = 7

    @machine.call
    def shown(self) -> str:
        """What it is, and half a year later."""
        return f"{(self.at + timedelta(days=180)).isoformat()} {self.hours}"


@pytest.mark.parametrize("cached", [0, 100])
async def test_fields_are_the_same_whether_or_not_the_machine_was_loaded_anew(opened: Open, cached: int) -> None:
    engine, _ = await opened(work=True, workflows=[Appointment], options=WorkerOptions(cached=cached))
    made = await engine.start(Appointment.made)
    if not cached:
        await until_row(engine, made.id, lambda row: row.owner is None)
    assert await made.call(Appointment.shown) == "2026-12-28T12:00:00+02:00 7.0"
