"""A guarded connection: whoever writes by it can neither end its transaction nor keep it from being taken back."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Permanent
from perdure.store.sqlite.step_transaction import GuardedConnection

LIMIT = 10.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "lent.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE sale (n INT PRIMARY KEY)")
    return path


@pytest.fixture
def guarded(path: str) -> Iterator[GuardedConnection]:
    """A connection that was lent, with one sale written."""
    guarded = sqlite3.connect(path, factory=GuardedConnection, timeout=0)
    guarded.execute("BEGIN IMMEDIATE")
    guarded.guard()
    guarded.execute("INSERT INTO sale VALUES (1)")
    yield guarded
    guarded.end()


def sales(path: str) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM sale ORDER BY n")]


def _with(connection: Any) -> None:
    with connection:
        return


ENDINGS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "close": lambda connection: connection.close(),
    "with": _with,
    "script": lambda connection: connection.executescript("SELECT 1"),
    "script of a cursor": lambda connection: connection.cursor().executescript("SELECT 1"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_would_end_the_transaction_is_refused_with_what_to_do_instead(
    guarded: GuardedConnection, path: str, ending: str
) -> None:
    with pytest.raises(Permanent, match=r"return to commit|one by one"):
        ENDINGS[ending](guarded)
    guarded.execute("INSERT INTO sale VALUES (2)")
    assert sales(path) == []
    guarded.finish()
    assert sales(path) == [1, 2]


@pytest.mark.parametrize(
    "statement", ["COMMIT", "/* now */ end", "ROLLBACK", "BEGIN IMMEDIATE", "begin", "COMMIT TRANSACTION"]
)
def test_a_statement_that_would_begin_or_end_a_transaction_is_refused(
    guarded: GuardedConnection, path: str, statement: str
) -> None:
    for cursor in (guarded, guarded.cursor(), guarded.cursor(sqlite3.Cursor)):
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            cursor.execute(statement)
    assert sales(path) == []


def test_savepoints_are_the_step_s_own(guarded: GuardedConnection, path: str) -> None:
    guarded.execute("SAVEPOINT mine")
    guarded.execute("INSERT INTO sale VALUES (2)")
    guarded.execute("ROLLBACK TO mine")
    guarded.executemany("INSERT INTO sale VALUES (?)", [(3,), (4,)])
    guarded.execute("RELEASE mine")
    assert guarded.execute("SELECT count(*) FROM sale").fetchone() == (3,)
    assert [n for (n,) in guarded.execute("SELECT n FROM sale ORDER BY n")] == [1, 3, 4]
    assert guarded.execute("SELECT n FROM sale ORDER BY n").fetchmany(2) == [(1,), (3,)]
    guarded.finish()
    assert sales(path) == [1, 3, 4]


def test_after_sqlite_itself_has_rolled_back_nothing_more_is_written(guarded: GuardedConnection, path: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        guarded.execute("INSERT OR ROLLBACK INTO sale VALUES (1)")
    assert not guarded.in_transaction
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        guarded.execute("INSERT INTO sale VALUES (2)")
    assert sales(path) == []


def test_what_is_taken_back_is_rolled_back_at_once_and_nothing_more_is_written(
    guarded: GuardedConnection, path: str
) -> None:
    guarded.take_back()
    with closing(sqlite3.connect(path, timeout=0)) as other, other:
        other.execute("INSERT INTO sale VALUES (9)")
    for call in (
        lambda: guarded.execute("INSERT INTO sale VALUES (2)"),
        lambda: guarded.cursor().executemany("INSERT INTO sale VALUES (?)", [(3,)]),
        lambda: guarded.execute("SELECT 1"),
    ):
        with pytest.raises(TimeoutError, match="given up"):
            call()
    assert sales(path) == [9]


def test_a_statement_under_way_is_interrupted_and_then_rolled_back(path: str) -> None:
    guarded = sqlite3.connect(path, factory=GuardedConnection, timeout=0)
    guarded.execute("BEGIN IMMEDIATE")
    guarded.guard()
    begun, errors = threading.Event(), []

    def count() -> None:
        guarded.create_function("begun", 0, begun.set)
        try:
            guarded.execute(
                "WITH RECURSIVE more (n) AS (SELECT begun() UNION ALL SELECT 1 FROM more) "
                "INSERT INTO sale SELECT 1 FROM more WHERE n > 1"
            )
        except sqlite3.Error as error:
            errors.append(error)

    thread = threading.Thread(target=count)
    thread.start()
    assert begun.wait(LIMIT)
    guarded.take_back()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [sqlite3.OperationalError]
    assert not guarded.in_transaction
    assert sales(path) == []
    guarded.end()


def test_many_taken_back_in_the_middle_of_their_calls_leave_no_lock_behind(path: str) -> None:
    for n in range(200):
        guarded = sqlite3.connect(path, factory=GuardedConnection, timeout=LIMIT)
        guarded.execute("BEGIN IMMEDIATE")
        guarded.guard()

        def write(guarded: GuardedConnection = guarded) -> None:
            try:
                for m in range(10_000):
                    guarded.execute("INSERT INTO sale VALUES (?)", (m,))
                    guarded.execute("SELECT n FROM sale").fetchall()
            except (sqlite3.Error, TimeoutError):
                return

        thread = threading.Thread(target=write)
        thread.start()
        threading.Event().wait(n % 10 / 2000)
        guarded.take_back()
        thread.join(LIMIT)
        assert not thread.is_alive()
        assert not guarded.in_transaction
        guarded.end()
    assert sales(path) == []
