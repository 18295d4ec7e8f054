"""The turnstile before the write lock: small writers are let by, and one that is stopped or killed holds up nobody."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.clock import SECOND, Computer
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.process import Process
from perdure.kernel.worker import WorkerRow
from perdure.store.sqlite.write_lock import DEAF_SECONDS, IN_VAIN, LONGEST_SECONDS, Turnstile
from perdure.store.sqlite.writer import CROWDED_CLAIM_ROWS, Transaction
from perdure.store.url import store_for
from perdure.testing.clock import MovableMachine

WAITS = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_SH)
print("waits", flush=True)
sys.stdin.read()
"""


class Gate:
    """A large writer's turnstile, on a clock that passes while it waits; ``looks`` counts its looks."""

    def __init__(self, folder: Path) -> None:
        self.machine = MovableMachine()
        self.looks = 0
        self.turnstile = Turnstile(folder, self.machine, self._wait)
        self.small = Turnstile(folder, self.machine, self._wait)
        self.goes_at: int | None = None

    def _wait(self, seconds: float) -> None:
        self.looks += 1
        self.machine.advance(seconds)
        if self.looks == self.goes_at:
            self.small.leave()

    def waited(self) -> float:
        """How long it lets others by."""
        before = self.machine.monotonic()
        self.turnstile.let_by()
        return self.machine.monotonic() - before


def test_where_nobody_waits_a_large_writer_goes_on_at_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    assert gate.waited() == 0.0
    assert not gate.turnstile.crowded


def test_a_large_writer_waits_until_the_small_one_is_through_and_no_longer(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.small.enter()
    gate.goes_at = 4
    assert 0.0 < gate.waited() < LONGEST_SECONDS
    assert (gate.looks, gate.turnstile.crowded) == (4, True)
    assert gate.waited() == 0.0


def test_two_small_writers_wait_side_by_side(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    other = Turnstile(tmp_path, gate.machine, gate._wait)
    gate.small.enter()
    other.enter()
    gate.small.leave()
    assert gate.waited() > LONGEST_SECONDS / 2
    other.leave()
    assert gate.waited() == 0.0


def test_a_waiter_that_never_goes_on_costs_a_few_milliseconds_a_few_times_a_second(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.small.enter()
    assert [gate.waited() > LONGEST_SECONDS / 2 for _ in range(IN_VAIN + 2)] == [True] * IN_VAIN + [False] * 2
    gate.machine.advance(DEAF_SECONDS)
    assert gate.waited() > LONGEST_SECONDS / 2


def test_a_waiter_that_is_stopped_holds_up_for_a_moment_and_one_that_is_killed_not_at_all(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    command = [sys.executable, "-c", WAITS, str(tmp_path / "turnstile")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiter:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == b"waits\n"
        os.kill(waiter.pid, signal.SIGSTOP)
        assert LONGEST_SECONDS / 2 < gate.waited() < 2 * LONGEST_SECONDS
        os.kill(waiter.pid, signal.SIGKILL)
        waiter.wait()
        assert gate.waited() == 0.0


def test_without_a_folder_everybody_goes_on_at_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "nowhere")
    gate.small.enter()
    assert gate.waited() == 0.0
    nowhere = Turnstile(None, gate.machine, gate._wait)
    nowhere.enter()
    nowhere.let_by()
    nowhere.leave()


@pytest.mark.timeout(30)
async def test_a_start_that_finds_the_database_locked_waits_at_the_turnstile_until_it_is_through(
    tmp_path: Path,
) -> None:
    store = store_for(f"sqlite:///{tmp_path}/perdure.db", Computer())
    await store.open()
    (tmp_path / "perdure.db-workers").mkdir(exist_ok=True)
    gate = Gate(tmp_path / "perdure.db-workers")
    holder = sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        starting = asyncio.create_task(store.start([Start(Process(b"1" * 16, "order", None, b"[]"))]))
        while gate.turnstile._empty():
            await asyncio.sleep(0)
        assert gate.waited() > LONGEST_SECONDS / 2
        holder.execute("COMMIT")
        [answer] = await starting
        assert answer.verdict is StartVerdict.CREATED
        assert gate.waited() == 0.0
    finally:
        holder.close()
        await store.close()


@pytest.mark.timeout(30)
async def test_large_batches_let_a_small_writer_by_and_claims_are_small_for_a_while(tmp_path: Path) -> None:
    store = store_for(f"sqlite:///{tmp_path}/perdure.db", Computer())
    await store.open()
    worker = WorkerRow(b"w" * 16, "here")
    await store.enlist(worker, 15 * SECOND)
    gate = Gate(tmp_path / "perdure.db-workers")
    gate.small.enter()
    many = [Start(Process(number.to_bytes(16, "big"), "order", None, b"[]")) for number in range(150)]
    try:
        assert not store._writer.turnstile.crowded  # type: ignore[attr-defined]
        await store.start(many)
        assert store._writer.turnstile.crowded  # type: ignore[attr-defined]
        claim = Claim(worker.id, (("order", ""),), 500, 15 * SECOND)
        first = await store.claim(claim)
        assert len(first.claimed) == CROWDED_CLAIM_ROWS
        assert first.next_due_at is not None and first.next_due_at <= first.now, "the others are due now"
        assert len((await store.claim(claim)).claimed) == 150 - CROWDED_CLAIM_ROWS
    finally:
        await store.close()


@pytest.mark.timeout(30)
async def test_a_portion_of_a_large_batch_lets_small_writers_by_however_few_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_for(f"sqlite:///{tmp_path}/perdure.db", Computer())
    await store.open()
    await store.enlist(WorkerRow(b"w" * 16, "here"), 15 * SECOND)
    Gate(tmp_path / "perdure.db-workers").small.enter()
    writer, waits = store._writer, list[float]()  # type: ignore[attr-defined]
    writer.pace.records = 10
    monkeypatch.setattr(writer.turnstile, "_wait", waits.append)
    try:
        await store.start([Start(Process(bytes([number]) * 16, "order", None, b"[]")) for number in range(10)])
        assert not (writer.turnstile.crowded or waits), "a small writer waits for nobody"
        await store.start([Start(Process(bytes([number]) * 16, "order", None, b"[]")) for number in range(10, 40)])
        assert writer.turnstile.crowded and waits
    finally:
        await store.close()


@pytest.mark.timeout(30)
async def test_a_small_writer_that_came_during_a_large_transaction_is_remembered(tmp_path: Path) -> None:
    store = store_for(f"sqlite:///{tmp_path}/perdure.db", Computer())
    await store.open()
    await store.enlist(WorkerRow(b"w" * 16, "here"), 15 * SECOND)
    gate, writer = Gate(tmp_path / "perdure.db-workers"), store._writer  # type: ignore[attr-defined]
    try:
        for many, remembered in (1, False), (100, True):

            def body(_: Transaction, records: Sequence[int]) -> list[int]:
                gate.small.enter()
                return [*records]

            await writer.write_all(range(many), body)
            gate.small.leave()
            assert writer.turnstile.crowded is remembered
    finally:
        await store.close()
