"""Rule 25: beats first, short transactions, busy by code with jitter, a bounded log, others' commits noticed."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure import limits
from perdure.errors import BadRecord, StoreUnavailable
from perdure.kernel.commit import Start
from perdure.kernel.worker import Beat
from perdure.store.notifications import Notification
from perdure.store.sqlite import connection
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.thread import SWITCH_SECONDS, switch_interval
from perdure.store.sqlite.writer import SMALL_RECORDS, BatchPace, Transaction
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE, SILENCE, going_on
from tests.store.sqlite.conftest import write_lock


async def _held(store: SqliteStore) -> tuple[threading.Event, asyncio.Task[None]]:
    """Keep the writer occupied until the event is set."""
    begun, go_on = threading.Event(), threading.Event()

    def occupy(transaction: Transaction) -> None:
        begun.set()
        go_on.wait(30)

    task = asyncio.create_task(store._writer.write(occupy))
    await asyncio.to_thread(begun.wait, 30)
    return go_on, task


def _size(path: Path) -> int:
    return path.stat().st_size


async def test_rule_25_a_beat_goes_before_everything_that_waits(trial: Trial, store: SqliteStore) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(5)]
    go_on, occupied = await _held(store)
    done: list[str] = []
    commits = [asyncio.create_task(store.commit([going_on(row)])) for row in rows]
    await asyncio.sleep(0)
    beat = asyncio.create_task(store.beat(Beat(worker, (), LEASE, SILENCE)))
    for task, name in [(task, "commit") for task in commits] + [(beat, "beat")]:
        task.add_done_callback(lambda _, name=name: done.append(name))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(occupied, beat, *commits)
    await asyncio.sleep(0)
    assert done == ["beat"] + ["commit"] * 5


def test_rule_25_a_transaction_that_took_too_long_makes_the_next_ones_smaller() -> None:
    pace = BatchPace()
    sizes = [pace.records]
    for _ in range(6):
        pace.took(0.2, pace.records)
        sizes.append(pace.records)
    assert sizes == [1000, 750, 562, 421, 315, 250, 250]
    for _ in range(6):
        pace.took(0.001, pace.records)
    assert pace.records == 1000


def test_while_small_writers_wait_a_transaction_that_took_too_long_halves_the_next_ones_whatever_limits_it() -> None:
    pace = BatchPace()
    pace.took(0.010, 200, commit=0.001)
    assert pace.records == limits.BATCH_RECORDS
    sizes = []
    for _ in range(4):
        pace.took(0.010, min(200, pace.records), commit=0.001, crowded=True)
        sizes.append(pace.records)
    assert sizes == [100, 50, 30, 30]
    pace = BatchPace()
    pace.took(0.010, 200, commit=0.009, crowded=True)
    assert pace.records == limits.BATCH_RECORDS, "of fewer records the disk would take as long"


def test_a_small_batch_says_nothing_about_large_ones() -> None:
    pace = BatchPace()
    pace.took(0.2, 3)
    assert pace.records == limits.BATCH_RECORDS


async def test_rule_25_a_batch_is_split_into_short_transactions_and_answered_in_its_order(
    trial: Trial, store: SqliteStore
) -> None:
    store._writer.pace.records = 70
    starts = [Start(trial.process(key=f"order/{number}")) for number in range(300)]
    answers = await store.start(starts)
    assert [answer.id for answer in answers] == [start.process.id for start in starts]
    assert len(await trial.stored()) == 300


async def test_rule_25_a_split_batch_stays_on_its_thread_until_other_work_waits_and_a_beat_goes_in_between(
    trial: Trial, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, writer = await trial.worker(), store._writer
    writer.pace.records = 10
    monkeypatch.setattr(writer.pace, "took", lambda *_, **__: None)
    pieces = 0
    plain = writer.thread._do

    def counted(work: Any) -> Any:
        nonlocal pieces
        pieces += 1
        return plain(work)

    monkeypatch.setattr(writer.thread, "_do", counted)
    await store.start([Start(trial.process()) for _ in range(40)])
    assert pieces == 1

    loop, beats, seen = asyncio.get_running_loop(), [], list[int]()
    begun = threading.Event()

    def beaten() -> None:
        beats.append(asyncio.create_task(store.beat(Beat(worker, (), LEASE, SILENCE))))
        loop.call_soon(begun.set)  # after the beat's task, which has queued it by then

    def body(transaction: Transaction, records: Sequence[int]) -> list[int]:
        [(beats_so_far,)] = transaction.connection.raw.execute("SELECT beats FROM worker WHERE id = ?", [worker])
        seen.append(beats_so_far)
        if len(seen) == 2:
            loop.call_soon_threadsafe(beaten)
            assert begun.wait(30)
        return [*records]

    assert await writer.write_all(range(40), body) == [*range(40)]
    await beats[0]
    assert seen == [0, 0, 1, 1]


async def test_rule_25_a_busy_database_is_tried_again_until_it_is_free(trial: Trial, raw: sqlite3.Connection) -> None:
    with write_lock(raw):
        start = asyncio.create_task(trial.started())
        done, _ = await asyncio.wait([start], timeout=0.05)
        assert not done
    assert (await start).kind == "order"


async def test_rule_25_a_database_busy_for_too_long_is_unavailable_and_nothing_is_stored(
    trial: Trial, raw: sqlite3.Connection, machine: MovableMachine
) -> None:
    with write_lock(raw):
        start = asyncio.create_task(trial.started())
        while not start.done():  # the writer's patience begins when its thread first finds the lock
            machine.advance(limits.SQLITE_BUSY_SECONDS + 1)
            await asyncio.wait([start], timeout=0.02)
        with pytest.raises(StoreUnavailable, match="locked for too long"):
            await start
    assert await trial.stored() == []
    assert (await trial.started()).kind == "order"


async def test_rule_25_a_reader_that_stays_long_stops_nobody(trial: Trial, raw: sqlite3.Connection) -> None:
    await trial.started()
    raw.execute("BEGIN")
    assert raw.execute("SELECT count(*) FROM process").fetchone() == (1,)
    await trial.started()
    assert len(await trial.stored()) == 2
    assert raw.execute("SELECT count(*) FROM process").fetchone() == (1,)
    raw.execute("COMMIT")


async def test_rule_25_the_log_is_bounded(trial: Trial, file: Path) -> None:
    log = file.with_name(file.name + "-wal")
    input = b'"' + b"x" * 20_000 + b'"'
    largest = 0
    for _ in range(60):
        await trial.store.start([Start(trial.process(input=input)) for _ in range(50)])
        largest = max(largest, _size(log))
    assert _size(file) > 40_000_000
    assert largest < 24 * 1024 * 1024 < limits.SQLITE_WAL_BYTES


async def test_a_small_writer_leaves_the_log_to_large_ones_until_it_is_twice_as_long(
    trial: Trial, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 100)
    await trial.started()  # small: now a large one sets what is patched
    log, page = file.with_name(file.name + "-wal"), 4096 + 24
    pages = []
    for many in (SMALL_RECORDS + 1, 1):
        for _ in range(500 // many):
            await trial.store.start([Start(trial.process()) for _ in range(many)])
        pages.append(_size(log) // page)
    assert 100 < pages[0] < 150 < 200 < pages[1] < 250


async def test_rule_25_a_log_that_a_long_reader_made_grow_is_cut_again(
    trial: Trial, raw: sqlite3.Connection, file: Path
) -> None:
    log = file.with_name(file.name + "-wal")
    input = b'"' + b"x" * 20_000 + b'"'
    await trial.store._writer.thread.run(  # type: ignore[attr-defined]
        lambda connection: connection.raw.execute("PRAGMA journal_size_limit = 4000000").fetchone()
    )
    raw.execute("BEGIN")
    raw.execute("SELECT count(*) FROM process").fetchone()
    for _ in range(30):
        await trial.store.start([Start(trial.process(input=input)) for _ in range(50)])
    assert _size(log) > 30_000_000
    raw.execute("COMMIT")
    for _ in range(2):
        await trial.store.start([Start(trial.process(input=input)) for _ in range(50)])
    assert _size(log) <= 4_100_000


@pytest.mark.parametrize("bells", [True, False])
async def test_rule_25_looking_for_others_needs_no_thread_and_backs_off_when_idle(
    trial: Trial, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, *, bells: bool
) -> None:
    if not bells:
        monkeypatch.setattr(store._notifier, "_folder", None)
    loop = asyncio.get_running_loop()
    later, delays = loop.call_later, []

    def noting(delay: float, *what: Any) -> asyncio.TimerHandle:
        delays.append(delay)
        return later(delay, *what)

    monkeypatch.setattr(loop, "call_later", noting)
    threads = threading.enumerate()
    stop = store.watch(lambda notification: None)
    watch = store._watch
    try:
        assert set(threading.enumerate()) <= set(threads)
        for _ in range(30):
            assert watch._timer is not None
            watch._timer.cancel()
            watch._look()
        deaf = limits.SQLITE_POLL_BUSY_SECONDS, limits.SQLITE_POLL_IDLE_SECONDS
        assert (delays[1], delays[-1]) == ((limits.SQLITE_POLL_RUNG_SECONDS,) * 2 if bells else deaf)
    finally:
        stop()
    assert watch._timer is None


async def test_rule_25_a_store_is_not_woken_by_looking_at_its_own_commits(trial: Trial, store: SqliteStore) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(3)]
    heard: list[Notification] = []
    stop = store.watch(heard.append)
    await store.commit([going_on(row) for row in rows])
    store._watch._look()
    assert heard == []
    await trial.started()
    store._watch._look()
    assert [notification.any_due for notification in heard] == [True]
    stop()


async def test_rule_25_the_interpreters_lock_changes_hands_quickly_while_a_transaction_is_written_and_only_then(
    store: SqliteStore,
) -> None:
    usual = sys.getswitchinterval()
    inside = await store._writer.write(lambda transaction: sys.getswitchinterval())
    assert inside == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == usual
    with pytest.raises(BadRecord):
        await store._writer.write(
            lambda transaction: transaction.connection.run("count_beat", id="text", due_at=1 << 70)
        )
    assert sys.getswitchinterval() == usual


def test_an_interval_that_is_short_already_is_left_alone() -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS / 5)
    try:
        with switch_interval, switch_interval:
            assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS / 5)
    finally:
        sys.setswitchinterval(usual)


async def test_rule_25_an_event_loop_that_is_always_busy_does_not_starve_the_writer(trial: Trial) -> None:
    loop = asyncio.get_running_loop()
    busy = True

    def spin() -> None:
        sum(range(300))
        if busy:
            loop.call_soon(spin)

    worker = await trial.worker()
    starts = [Start(trial.process(owner=worker, token=1), (), LEASE) for _ in range(200)]
    spin()
    try:
        async with asyncio.timeout(20):
            for _ in range(5):
                await trial.store.start(starts)
    finally:
        busy = False
    assert len(await trial.stored()) == 200
