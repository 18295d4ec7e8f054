"""Rule 15 on SQLite: each transaction has one time, and keeps it in the database before anybody can be told of it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.clock import SECOND
from perdure.kernel.commit import Start
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.clock import NOON, MovableMachine
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import only


@pytest.fixture
async def late(url: str, machine: MovableMachine, store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """Another store on the file, which hears of the clock only as far as it asks."""
    store = SqliteStore(url, machine=machine)
    await store.open()
    yield store
    await store.close()


async def put_back(trial: Trial) -> None:
    """The clock is put back by an hour, time goes on with a lead, and three seconds pass."""
    worker = await trial.worker()
    await trial.time.advance(1)
    await trial.beat(worker)
    await trial.time.set_back(3600)
    assert (await trial.beat(worker)).lead
    await trial.time.advance(3)


def kept(raw: sqlite3.Connection) -> int:
    """The mark of the store's time that is in the database."""
    found: int = raw.execute("SELECT at FROM clock").fetchone()[0]
    return found


async def test_what_a_store_writes_that_has_not_heard_of_the_lead_is_no_later_than_the_time_that_is_kept(
    trial: Trial, late: SqliteStore, raw: sqlite3.Connection
) -> None:
    await put_back(trial)
    other = Trial(trial.ground, late, trial.ids)
    row = await other.started()
    assert row.changed_at == kept(raw)
    await trial.time.set_back(3600)
    assert await trial.store.now() >= row.changed_at, "time never runs backward, not even over another jump"


async def test_a_start_on_the_callers_connection_keeps_the_time_that_it_writes(
    trial: Trial, store: SqliteStore, machine: MovableMachine, file: Path, raw: sqlite3.Connection
) -> None:
    await put_back(trial)
    process = trial.process()
    with sqlite3.connect(file) as mine:
        mine.execute("BEGIN IMMEDIATE")
        await store.backend.in_transaction(mine).start(Start(process))
    mine.close()
    assert (await trial.row(process.id)).changed_at == kept(raw)


class Running(MovableMachine):
    """A clock that goes on by a millisecond whenever somebody looks at it."""

    def now(self) -> int:
        """The time, a millisecond after the last time."""
        self.advance(0.001)
        return super().now()


async def test_a_claim_takes_over_nothing_whose_lease_ends_a_moment_after_its_own_time(url: str, trial: Trial) -> None:
    machine = Running()
    store = SqliteStore(url, machine=machine)
    await store.open()
    try:
        claiming = Trial(trial.ground, store, machine)
        silent, heir = await claiming.worker("silent"), await claiming.worker("heir")
        ends: dict[bytes, int] = {}
        for n in range(40):
            row = await claiming.started()
            lease = NOON + SECOND + 1_000 * n - await store.now()
            ends[row.id] = only((await claiming.claim(silent, only=row.id, lease=lease)).claimed).process.due_at or 0
        taken = 0
        while taken < len(ends) and machine.now() < NOON + 10 * SECOND:
            for claimed in (await claiming.claim(heir)).claimed:
                taken += 1
                assert claimed.process.changed_at >= ends[claimed.process.id]
        assert taken == len(ends)
    finally:
        await store.close()
