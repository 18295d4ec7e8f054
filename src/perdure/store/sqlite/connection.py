"""One connection to SQLite with the named queries, written so that a batch needs few and constant calls.

Every call into SQLite gives up the interpreter's lock and may wait 5 ms to get it back while an event loop is busy.
So a batch is handed over as one multi-row VALUES of a fixed size, and every answer is one row. The driver's `execute`
gives the lock up three times, its `executemany` (here always of one batch) twice, its `commit` and its own BEGIN once.

The driver binds whole numbers, floats, str and bytearray at once, but takes ten times as long, under the interpreter's
lock, for None and five times for bytes. So in rows NULL is handed over as -0.5, which no column can hold, and bytes as
bytearray; -0.5 also fills a batch up to its fixed size.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from perdure.errors import StoreUnavailable
from perdure.limits import SQLITE_WAL_BYTES
from perdure.logs import logger
from perdure.store.query import load, repeated
from perdure.store.sqlite.file import LogFile, SqliteFile
from perdure.store.sqlite.text import escaped, undecodable

log = logger("store")

ROWS = 1024
"""The most rows of one statement: 31 columns stay below SQLite's default of 32,766 parameters."""

NOTHING = -0.5
"""What is handed over for NULL."""

CHECKPOINT_PAGES = 4_000
"""After so many pages in the log a commit puts them into the database; a small one after twice as many."""
_SIZES = tuple(sorted({*(1 << power for power in range(11)), *(3 << power for power in range(9))}))
"""How many rows a statement may have: 1, 2, 3, 4, 6, 8, 12, 16, … 1,024. A batch is filled up to the next of them."""
_TABLE_OF_ROWS = re.compile(r"\s+FROM /\* rows \*/ \(VALUES\s+/\* each \*/[^/]*/\* end \*/\s*\)")
_COLUMN = re.compile(r"\bcolumn(\d+)\b")


class Connection:
    """A connection of one thread. The first statement of a transaction that writes takes the write lock."""

    def __init__(self, file: SqliteFile) -> None:
        self._sql = load("sqlite")
        self.in_memory = file.path is None
        self._log = None if file.path is None else LogFile(file.path)
        self._saved = ""
        self._synced = True
        self._small = False
        self._sized: dict[tuple[str, int], str] = {}
        self._alone: dict[str, tuple[str, Callable[[Sequence[Any]], Sequence[Any]]]] = {}
        self.raw = sqlite3.connect(
            file.path or ":memory:",
            timeout=0,
            isolation_level="IMMEDIATE",
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            self._set_up()
        except BaseException:
            self.raw.close()
            raise

    def _set_up(self) -> None:
        # The first statement that reads the file is where a busy, foreign or unreadable one shows itself.
        for pragma in ("foreign_keys = ON", "trusted_schema = OFF", "synchronous = FULL", "temp_store = MEMORY"):
            self.raw.execute(f"PRAGMA {pragma}")
        self.raw.execute(f"PRAGMA journal_size_limit = {SQLITE_WAL_BYTES}")
        self.raw.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self.raw.execute("PRAGMA cache_size = -16384")
        for view in ("create_packed_process", "create_packed_event", "create_packed_message", "create_due_pair"):
            self.raw.execute(self._sql[view])

    def sync(self, wanted: bool) -> None:
        """Set whether a transaction is on disk once it is committed, or only with the next one that is synced."""
        if wanted is not self._synced:
            self.raw.execute("PRAGMA synchronous = FULL" if wanted else "PRAGMA synchronous = NORMAL")
            self._synced = wanted

    def small(self, wanted: bool) -> None:
        """Set whether a transaction is small: such a one puts the log into the database only if no large one has."""
        if wanted is not self._small:
            self.raw.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES * (1 + wanted)}")
            self._small = wanted

    def define(self, name: str) -> None:
        """Run a statement that changes the schema."""
        self.raw.execute(self._sql[name])

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.raw.in_transaction

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """What is read inside is what stood in the database at one moment, whatever others write meanwhile."""
        if self.raw.in_transaction:
            yield
            return
        self.raw.execute("BEGIN")  # takes no lock
        try:
            yield
        finally:
            self.raw.rollback()

    def one(self, name: str, /, **given: Any) -> tuple[Any, ...]:
        """The one row that a query answers; an empty tuple if it answers none. Parameters have names."""
        row = self._fetched(self._sql[name], given)
        return () if row is None else row

    def run(self, name: str, /, **given: Any) -> int:
        """Run a statement; the answer is the number of rows it changed. Parameters have names."""
        return self.raw.executemany(self._sql[name], (given,)).rowcount

    def write(self, name: str, width: int, cells: list[Any], *common: Any) -> int:
        """Run a statement over rows of ``width`` cells, laid out one after the other; the number of changed rows."""
        changed = 0
        for text, part in self._parts(name, width, cells):
            changed += self.raw.executemany(text, ([*common, *part] if common else part,)).rowcount
        return changed

    def ask(self, name: str, width: int, cells: list[Any], *common: Any) -> list[tuple[Any, ...]]:
        """The one-row answers of a query over rows: one answer for every 1,024 rows. ``common`` comes before them."""
        return [
            self._fetched(text, [*common, *part] if common else part) for text, part in self._parts(name, width, cells)
        ]

    def search(self, name: str, where: str, given: Sequence[Any]) -> tuple[Any, ...]:
        """The one row of a query into which the search builder has put its conditions."""
        sql = self._sql[name].replace("/* conditions */", where)
        row: tuple[Any, ...] = self._fetched(sql, given)
        return row

    def _fetched(self, sql: str, given: Any) -> Any:
        """The first row of an answer. If a text in it is not UTF-8, the query runs again with such texts escaped."""
        try:
            return self.raw.execute(sql, given).fetchone()
        except sqlite3.OperationalError as error:
            if not undecodable(error):
                raise
        usual, self.raw.text_factory = self.raw.text_factory, escaped
        try:
            return self.raw.execute(sql, given).fetchone()
        finally:
            self.raw.text_factory = usual

    def _parts(self, name: str, width: int, cells: list[Any]) -> list[tuple[str, Sequence[Any]]]:
        full = ROWS * width
        if len(cells) <= full:
            return [self._filled(name, width, cells)]
        return [self._filled(name, width, cells[at : at + full]) for at in range(0, len(cells), full)]

    def _filled(self, name: str, width: int, cells: list[Any]) -> tuple[str, Sequence[Any]]:
        rows = len(cells) // width
        if rows == 1:
            if name not in self._alone:
                self._alone[name] = alone(self._sql[name])
            text, arranged = self._alone[name]
            return text, arranged(cells)
        size = next(size for size in _SIZES if size >= rows)
        key = (name, size)
        if key not in self._sized:
            self._sized[key] = repeated(self._sql[name], size)
        if size > rows:
            cells = cells + [NOTHING] * ((size - rows) * width)
        return self._sized[key], cells

    def stand(self) -> None:
        """Raise StoreUnavailable if the log of writes (WAL) was removed under this connection.

        Called before each piece of work. What only the removed log holds is put into the database at once: this
        connection still has it open. Further writes would go where no new connection looks, while other connections
        write to another log.
        """
        if self._log is None or not self._log.lost():
            return
        if not self._saved:
            try:
                busy, pages, saved = self.raw.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
                self._saved = "was saved" if not busy and pages == saved else "could not all be saved"
            except sqlite3.Error as error:
                self._saved = f"could not be saved ({error})"
            log.error("the log of writes %s was removed under its users; what it held %s", self._log.path, self._saved)
        raise StoreUnavailable(
            f"the log of writes {self._log.path} was removed or replaced while open; what it held {self._saved}, and "
            "nothing is written any more. Stop all that has this database open, then start the workers again"
        )

    def close(self) -> None:
        """Let go of the file; an open transaction is rolled back."""
        self.raw.close()


def alone(query: str) -> tuple[str, Callable[[Sequence[Any]], Sequence[Any]]]:
    """The query for a batch of one, and what arranges its cells.

    If its FROM is marked ``/* rows */``, each cell replaces the name of its column: a table of one row would cost
    SQLite as much time as the work itself.
    """
    direct, marked = _TABLE_OF_ROWS.subn("", query)
    if not marked:
        return repeated(query, 1), lambda cells: cells
    order = [int(column) - 1 for column in _COLUMN.findall(direct)]
    return _COLUMN.sub("?", direct), itemgetter(*order)
