"""What SQLite says by code: full, read-only, damaged; and a connection whose state is known after every failure."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from perdure.errors import BadRecord, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.kernel.commit import Start, Verdict
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.error import lost, translated
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.writer import Transaction
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on
from tests.store.sqlite.conftest import Spawn

NOBODY = 65534

READ_ONLY = """
import asyncio, os, sys
from perdure.errors import StoreError
from perdure.store.sqlite.store import SqliteStore
async def main():
    warm = SqliteStore("sqlite://:memory:")  # loads all code while that is still allowed
    await warm.open()
    await warm.close()
    os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
    try:
        await SqliteStore(sys.argv[1]).open()
    except StoreError as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""


def _error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("database is locked, disk is full, and the text says anything")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_READONLY, StoreReadOnly),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreReadOnly),
        (sqlite3.SQLITE_CANTOPEN, StoreError),
        (sqlite3.SQLITE_BUSY, StoreUnavailable),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreUnavailable),
        (sqlite3.SQLITE_LOCKED, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT, StoreError),
        (sqlite3.SQLITE_CONSTRAINT_CHECK, BadRecord),
        (sqlite3.SQLITE_TOOBIG, BadRecord),
        (sqlite3.SQLITE_ERROR, StoreError),
    ],
)
def test_an_error_is_told_by_its_code_and_never_by_its_text(code: int, kind: type[StoreError]) -> None:
    assert type(translated(_error(code))) is kind


def test_after_a_failed_read_or_write_of_the_file_a_connection_is_not_used_again() -> None:
    assert lost(_error(sqlite3.SQLITE_IOERR_WRITE))
    assert not lost(_error(sqlite3.SQLITE_FULL))


async def test_a_full_disk_stops_writing_and_room_lets_it_go_on(trial: Trial, store: SqliteStore) -> None:
    worker = await trial.worker()
    row = await trial.owned(worker)
    large = b'"' + b"x" * 100_000 + b'"'
    before = await trial.whole(row.id)

    def pages(most: int) -> object:
        return store._writer.thread.run(
            lambda connection: connection.raw.execute(f"PRAGMA max_page_count = {most}").fetchone()
        )

    await pages(60)
    with pytest.raises(StoreFull, match="make room"):
        await store.start([Start(trial.process(input=large)) for _ in range(20)])
    with pytest.raises(StoreFull):
        await trial.commit(going_on(row, state=large * 2))
    assert await trial.whole(row.id) == before
    assert (await trial.beat(worker, row)).alive
    await pages(1_000_000)
    assert (await trial.commit(going_on(row, state=large * 2))).verdict is Verdict.APPLIED


async def test_a_file_that_may_only_be_read_is_told_of(store: SqliteStore, url: str, file: Path, spawn: Spawn) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody who may not write")
    await store.close()
    for path in (file.parent, *file.parent.parents[:3]):
        path.chmod(path.stat().st_mode | 0o555)
    file.chmod(0o444)
    out, _ = spawn(READ_ONLY, url, str(NOBODY)).communicate()
    assert out.startswith(("StoreReadOnly the database cannot be written", "StoreReadOnly the system denies"))


async def test_a_database_that_became_read_only_refuses_writes_and_still_answers(
    trial: Trial, store: SqliteStore
) -> None:
    row = await trial.started()
    await store._writer.thread.run(lambda connection: connection.raw.execute("PRAGMA query_only = ON").fetchone())
    with pytest.raises(StoreReadOnly, match="check the rights"):
        await trial.started()
    assert await trial.row(row.id) == row


async def test_after_a_failed_commit_nothing_is_open_and_the_next_one_works(trial: Trial, store: SqliteStore) -> None:
    def orphan(transaction: Transaction) -> None:
        # The reference is looked at by COMMIT only, which then fails with the transaction still open.
        transaction.connection.raw.execute("PRAGMA defer_foreign_keys = ON")
        transaction.connection.raw.execute(
            "INSERT INTO event VALUES (zeroblob(16), 1, 1, 1, 1, 1, '', '', NULL, NULL, NULL, 1, 1)"
        )

    with pytest.raises(BadRecord):
        await store._writer.write(orphan)
    assert not await store._writer.thread.run(lambda connection: connection.in_transaction)
    assert (await trial.started()).kind == "order"


async def test_a_connection_that_cannot_even_roll_back_is_replaced(trial: Trial, store: SqliteStore) -> None:
    def leave_open(connection: Connection) -> None:
        connection.raw.execute("BEGIN IMMEDIATE")
        raise _error(sqlite3.SQLITE_INTERRUPT)

    before = await store._writer.thread.run(id)
    with pytest.raises(StoreUnavailable):
        await store._writer.thread.run(leave_open)
    assert await store._writer.thread.run(id) != before
    assert (await trial.started()).kind == "order"


async def test_a_connection_whose_file_could_not_be_written_is_replaced(trial: Trial, store: SqliteStore) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.connection.run("leave_due_hint")
        raise _error(sqlite3.SQLITE_IOERR_FSYNC)

    before = await store._writer.thread.run(id)
    with pytest.raises(StoreUnavailable, match="check the disk"):
        await store._writer.write(fail)
    assert await store._writer.thread.run(id) != before
    assert (await trial.started()).kind == "order"


async def test_a_closed_store_says_so(url: str, machine: MovableMachine) -> None:
    store = SqliteStore(url, machine=machine)
    with pytest.raises(StoreError, match="open it first"):
        await store.now()
    await store.open()
    await store.close()
    with pytest.raises(StoreError, match="open it first"):
        await store.now()
    await store.open()
    assert await store.now() > 0
    await store.close()


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
async def test_a_file_taken_away_under_a_worker_is_told_of_and_moving_it_back_lets_work_go_on(
    trial: Trial, store: SqliteStore, file: Path, replaced: bool
) -> None:
    worker = await trial.worker()
    row = await trial.owned(worker)
    before = await trial.whole(row.id)
    aside = file.with_suffix(".aside")
    file.rename(aside)
    if replaced:
        file.write_bytes(aside.read_bytes())
    for call in (trial.beat(worker, row), trial.commit(going_on(row)), store.workers()):
        with pytest.raises(StoreUnavailable, match=r"removed or replaced .* start the worker again"):
            await call
    aside.replace(file)
    assert await trial.whole(row.id) == before
    assert (await trial.commit(going_on(row))).verdict is Verdict.APPLIED


async def test_a_log_of_writes_that_is_removed_under_its_users_is_told_of_and_what_it_held_is_saved(
    trial: Trial, store: SqliteStore, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(20)]
    for row in rows:
        await trial.done(going_on(row))
    before = [await trial.whole(row.id) for row in rows]
    Path(f"{file}-wal").unlink()
    told = r"log of writes .* was removed .* what it held was saved"
    for call in (trial.beat(worker, rows[0]), trial.started(), store.workers()):
        with pytest.raises(StoreUnavailable, match=told):
            await call
    assert "was removed under its users; what it held was saved" in caplog.text
    alone = tmp_path / "alone.db"
    alone.write_bytes(file.read_bytes())  # without any log: all that was accepted is in the database itself
    await store.close()
    for place in (alone, file):
        again = SqliteStore(f"sqlite:///{place}")
        await again.open()
        try:
            assert [await Trial(trial.ground, again).whole(row.id) for row in rows] == before
        finally:
            await again.close()
