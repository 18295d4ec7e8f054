"""Steps with a transaction, on both stores: effect and result are there together, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import attempt
from perdure.engine import Engine
from perdure.errors import ProcessFailed
from perdure.kernel.event import EventType
from perdure.store.sealed.codec import AesGcm, Zstd
from perdure.store.sealed.offload import Folder
from tests.runtime.account import (
    FLOWS,
    Account,
    answers,
    booked_unheard,
    booking,
    events,
    fail_once,
    hooks,
    mistaken,
    quick_booking,
    sound,
    two_bookings,
)
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def test_effect_and_result_are_recorded_together(engine: Engine, account: Account) -> None:
    handle = await engine.start(booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    assert await account.booked() == ["a"]
    [done] = await events(engine, handle.id, EventType.STEP_COMPLETED)
    [message] = await engine.store.messages([(handle.id_bytes, 0)])
    assert (done.name, done.message, done.payload) == ("book", message.number, None)
    assert (message.payload, message.consumed_by) == (b'"A"', done.number)
    await sound(engine, handle.id_bytes)


async def test_many_at_once_are_each_recorded_once(engine: Engine, account: Account) -> None:
    handles = await engine.start_many(booking, [(account.kind, f"{n:02}") for n in range(40)])
    assert [await handle.result(LIMIT) for handle in handles] == [f"{n:02}" for n in range(40)]
    assert await account.booked() == [f"{n:02}" for n in range(40)]
    assert await account.keys() == 40


async def test_what_a_failed_attempt_wrote_is_rolled_back_and_the_next_one_counts(
    engine: Engine, account: Account
) -> None:
    hooks["a"] = fail_once(ConnectionError("the bank is closed"))
    handle = await engine.start(booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    assert await account.booked() == ["a"]
    assert len(await events(engine, handle.id, EventType.ATTEMPT_FAILED)) == 1
    await sound(engine, handle.id_bytes)


async def test_a_result_that_cannot_be_stored_takes_its_effect_with_it(engine: Engine, account: Account) -> None:
    answers["a"] = 7
    handle = await engine.start(booking, account.kind, "a")
    with pytest.raises(ProcessFailed, match="PayloadError"):
        await handle.result(LIMIT)
    assert await account.booked() == []


async def test_an_attempt_over_its_deadline_is_rolled_back_though_its_thread_hangs(
    engine: Engine, account: Account
) -> None:
    release = threading.Event()
    calls: list[int] = []

    def hang() -> Any:
        calls.append(1)
        if len(calls) > 1:
            return None
        return release.wait() if account.kind == "sqlite" else stubborn(release)

    hooks["a"] = hang
    handle = await engine.start(quick_booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    assert await account.booked() == ["a"], "others could write although the first attempt still hangs"
    release.set()
    assert engine.metrics()["step_timeouts"] == 1
    await until(lambda: engine.metrics()["late_results"] or account.kind == "postgres")
    assert await account.booked() == ["a"]
    await sound(engine, handle.id_bytes)


async def stubborn(release: threading.Event) -> None:
    """Does not end when it is cancelled."""
    while not release.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


async def test_results_are_replayed_by_whoever_goes_on(opened: Open, account: Account) -> None:
    first, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    handle = await first.start(two_bookings, account.kind, "a", "b")
    await until_row(first, handle.id, lambda row: row.owner is None and row.seen == 1)
    await first.close()
    second, _ = await opened(work=True, workflows=FLOWS)
    await second.process(handle.id).signal("go on", "on")
    assert await second.process(handle.id).result(timeout=LIMIT) == ["A", "on", "B"]
    assert await account.booked() == ["a", "b"]
    await sound(second, handle.id_bytes)


async def test_a_result_that_nobody_has_heard_is_not_asked_for_again(
    opened: Open, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    handle = await booked_unheard(first, monkeypatch, booking, account.kind, "a")
    assert await account.booked() == ["a"]
    assert await events(first, handle.id, EventType.STEP_COMPLETED) == []
    await first.close(0)
    second, _ = await opened(work=True, workflows=FLOWS)
    assert await second.process(handle.id).result(timeout=LIMIT) == "A"
    assert await account.booked() == ["a"]
    assert second.metrics()["steps"] == 0, "it was not run again"
    await sound(second, handle.id_bytes)


async def test_a_step_in_the_form_of_the_other_store_is_refused_with_what_to_do(
    engine: Engine, account: Account
) -> None:
    handle = await engine.start(mistaken, account.kind)
    told = await handle.result(LIMIT)
    assert told.startswith("DefinitionError 1: ")
    assert ("Write it as an ordinary `def`" if account.kind == "sqlite" else "Write it as an `async def`") in told
    assert await account.booked() == []


async def test_results_are_sealed_and_large_ones_stay_in_the_database(
    opened: Open, account: Account, tmp_path: Any
) -> None:
    offload = Folder(tmp_path / "blobs", above=1000)
    engine, _ = await opened(work=True, workflows=FLOWS, codecs=[Zstd(), AesGcm({"old": bytes(32)})], offload=offload)
    await account.open()
    long = "".join(chr(0x4E00 + n) for n in range(5000))
    handle = await engine.start(booking, account.kind, long)
    assert await handle.result(LIMIT) == long
    await engine.close()
    plain, _ = await opened(codecs=[], offload=None)
    [message] = await plain.store.messages([(handle.id_bytes, 0)])
    assert message.payload[:2] == b"\xc1\x03"
    assert len(message.payload) > 1000


async def test_a_sealed_result_that_is_too_large_for_the_database_is_refused_with_its_effect(
    opened: Open, account: Account, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INSIDE_PAYLOAD_BYTES", 1000)
    engine, _ = await opened(work=True, workflows=FLOWS, codecs=[Zstd()], offload=Folder(tmp_path / "blobs", above=500))
    await account.open()
    answers["a"] = "A" * 2000
    with pytest.raises(ProcessFailed, match="a step with a transaction stays in the database, and may have 1,000"):
        await (await engine.start(booking, account.kind, "a")).result(LIMIT)
    assert await account.booked() == []


async def test_while_the_file_is_locked_by_others_no_attempt_is_spent(
    opened: Open, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    if account.kind == "postgres":
        pytest.skip("connections are refused alike, see tests/store/test_step_transaction.py")
    monkeypatch.setattr(limits, "SQLITE_BUSY_SECONDS", 0.05)
    engine, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    handle = await engine.start(two_bookings, account.kind, "a", "b")
    await until_row(engine, handle.id, lambda row: row.owner is None and row.seen == 1)
    transactional_steps = engine.worker.scheduler.agent.transactional_steps  # type: ignore[union-attr]
    begin, put_off = transactional_steps.begin, transactional_steps._put_off  # type: ignore[union-attr]
    locking = sqlite3.connect(account.url.removeprefix("sqlite:///"), isolation_level=None)

    def begin_locked(attempt_run: Any) -> None:
        if not locking.in_transaction:
            locking.execute("BEGIN IMMEDIATE")
        begin(attempt_run)

    def put_off_and_unlock(attempt_run: Any, why: Any) -> None:
        transactional_steps.begin = begin  # type: ignore[method-assign, union-attr]
        locking.execute("ROLLBACK")
        put_off(attempt_run, why)

    monkeypatch.setattr(transactional_steps, "begin", begin_locked)
    monkeypatch.setattr(transactional_steps, "_put_off", put_off_and_unlock)
    await engine.process(handle.id).signal("go on", "on")
    assert await handle.result(LIMIT) == ["A", "on", "B"]
    assert not locking.in_transaction, "it was locked and put off"
    locking.close()
    assert await events(engine, handle.id, EventType.ATTEMPT_FAILED) == []


async def test_a_process_is_started_in_the_transaction_of_a_step(engine: Engine, account: Account) -> None:
    hooks["a"] = lambda: engine.within(attempt().connection).start(booking.options(key="b"), account.kind, "b")
    handle = await engine.start(booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    assert await (await engine.handle(booking, "b")).result(LIMIT) == "B"
    assert await account.booked() == ["a", "b"]


async def test_memory_and_steps_do_not_go_together_and_it_says_what_to_do() -> None:
    async with Engine("sqlite://:memory:", work=True, workflows=FLOWS) as engine:
        handle = await engine.start(booking, "sqlite", "a")
        with pytest.raises(ProcessFailed, match="Use PostgreSQL, or SQLite with a file"):
            await handle.result(LIMIT)
