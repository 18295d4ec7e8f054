"""A lent connection: whoever writes by it can neither end its transaction nor keep it from being taken back."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Permanent
from perdure.store.sqlite.step_transaction import Lent

LIMIT = 10.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "lent.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE sale (n INT PRIMARY KEY)")
    return path


@pytest.fixture
def lent(path: str) -> Iterator[Lent]:
    """A connection that was lent, with one sale written."""
    lent = sqlite3.connect(path, factory=Lent, timeout=0)
    lent.execute("BEGIN IMMEDIATE")
    lent.lend()
    lent.execute("INSERT INTO sale VALUES (1)")
    yield lent
    lent.end()


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
def test_what_would_end_the_transaction_is_refused_with_what_to_do_instead(lent: Lent, path: str, ending: str) -> None:
    with pytest.raises(Permanent, match=r"return to commit|one by one"):
        ENDINGS[ending](lent)
    lent.execute("INSERT INTO sale VALUES (2)")
    assert sales(path) == []
    lent.finish()
    assert sales(path) == [1, 2]


@pytest.mark.parametrize(
    "statement", ["COMMIT", "/* now */ end", "ROLLBACK", "BEGIN IMMEDIATE", "begin", "COMMIT TRANSACTION"]
)
def test_a_statement_that_would_begin_or_end_a_transaction_is_refused(lent: Lent, path: str, statement: str) -> None:
    for cursor in (lent, lent.cursor(), lent.cursor(sqlite3.Cursor)):
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            cursor.execute(statement)
    assert sales(path) == []


def test_savepoints_are_the_step_s_own(lent: Lent, path: str) -> None:
    lent.execute("SAVEPOINT mine")
    lent.execute("INSERT INTO sale VALUES (2)")
    lent.execute("ROLLBACK TO mine")
    lent.executemany("INSERT INTO sale VALUES (?)", [(3,), (4,)])
    lent.execute("RELEASE mine")
    assert lent.execute("SELECT count(*) FROM sale").fetchone() == (3,)
    assert [n for (n,) in lent.execute("SELECT n FROM sale ORDER BY n")] == [1, 3, 4]
    assert lent.execute("SELECT n FROM sale ORDER BY n").fetchmany(2) == [(1,), (3,)]
    lent.finish()
    assert sales(path) == [1, 3, 4]


def test_after_sqlite_itself_has_rolled_back_nothing_more_is_written(lent: Lent, path: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        lent.execute("INSERT OR ROLLBACK INTO sale VALUES (1)")
    assert not lent.in_transaction
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        lent.execute("INSERT INTO sale VALUES (2)")
    assert sales(path) == []


def test_what_is_taken_back_is_rolled_back_at_once_and_nothing_more_is_written(lent: Lent, path: str) -> None:
    lent.take_back()
    with closing(sqlite3.connect(path, timeout=0)) as other, other:
        other.execute("INSERT INTO sale VALUES (9)")
    for call in (
        lambda: lent.execute("INSERT INTO sale VALUES (2)"),
        lambda: lent.cursor().executemany("INSERT INTO sale VALUES (?)", [(3,)]),
        lambda: lent.execute("SELECT 1"),
    ):
        with pytest.raises(TimeoutError, match="given up"):
            call()
    assert sales(path) == [9]


def test_a_statement_under_way_is_interrupted_and_then_rolled_back(path: str) -> None:
    lent = sqlite3.connect(path, factory=Lent, timeout=0)
    lent.execute("BEGIN IMMEDIATE")
    lent.lend()
    begun, errors = threading.Event(), []

    def count() -> None:
        lent.create_function("begun", 0, begun.set)
        try:
            lent.execute(
                "WITH RECURSIVE more (n) AS (SELECT begun() UNION ALL SELECT 1 FROM more) "
                "INSERT INTO sale SELECT 1 FROM more WHERE n > 1"
            )
        except sqlite3.Error as error:
            errors.append(error)

    thread = threading.Thread(target=count)
    thread.start()
    assert begun.wait(LIMIT)
    lent.take_back()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [sqlite3.OperationalError]
    assert not lent.in_transaction
    assert sales(path) == []
    lent.end()


def test_many_taken_back_in_the_middle_of_their_calls_leave_no_lock_behind(path: str) -> None:
    for n in range(200):
        lent = sqlite3.connect(path, factory=Lent, timeout=LIMIT)
        lent.execute("BEGIN IMMEDIATE")
        lent.lend()

        def write(lent: Lent = lent) -> None:
            try:
                for m in range(10_000):
                    lent.execute("INSERT INTO sale VALUES (?)", (m,))
                    lent.execute("SELECT n FROM sale").fetchall()
            except (sqlite3.Error, TimeoutError):
                return

        thread = threading.Thread(target=write)
        thread.start()
        threading.Event().wait(n % 10 / 2000)
        lent.take_back()
        thread.join(LIMIT)
        assert not thread.is_alive()
        assert not lent.in_transaction
        lent.end()
    assert sales(path) == []
