"""SQLite's errors as the store's own, told apart by their codes, never by their texts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping

from perdure.errors import BadRecord, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.exhaustion import exhausted

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
"""Another connection holds a lock that we need: trying again is right."""

LOST = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""After one of these a connection is not used again."""

_REFUSED_BY_TYPE = (
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
    TypeError,
)
"""What the driver raises, without a code, for a value that it cannot hand to SQLite."""

_MEANING: Mapping[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "the disk or the database is full; make room, work goes on by itself"),
    sqlite3.SQLITE_READONLY: (
        StoreReadOnly,
        "the database cannot be written; check the rights of the file and of its folder",
    ),
    sqlite3.SQLITE_PERM: (StoreReadOnly, "the system denies access to the database; check the rights of the file"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "the database cannot be opened; check that its folder exists and may be written by this user",
    ),
    sqlite3.SQLITE_BUSY: (
        StoreUnavailable,
        "another program has kept the database locked for too long; "
        "end that program (a backup, a shell, a worker that a signal has stopped), or try again",
    ),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "reading or writing the file failed; check the disk, then try again"),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "SQLite ran out of memory; try again with smaller batches"),
    sqlite3.SQLITE_INTERRUPT: (StoreUnavailable, "the statement was interrupted; try again"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "the database file is damaged; stop all workers and restore a backup"),
    sqlite3.SQLITE_NOTADB: (StoreError, "the file is not a SQLite database; check the path in the URL"),
    sqlite3.SQLITE_CONSTRAINT: (
        BadRecord,
        "a record would break a law of the store; correct the value or leave it out (texts hold no NUL), "
        "or report it with this text",
    ),
    sqlite3.SQLITE_MISMATCH: (
        BadRecord,
        "the database refused a value of the wrong type; correct the value or leave it out",
    ),
    sqlite3.SQLITE_TOOBIG: (BadRecord, "a record is too large for SQLite; make the value smaller"),
}


def code(error: BaseException) -> int:
    """The primary code of an SQLite error, 0 if it carries none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def busy(error: BaseException) -> bool:
    """Whether another connection's lock was in the way."""
    return code(error) in BUSY


def lost(error: BaseException) -> bool:
    """Whether the connection must be thrown away."""
    return code(error) in LOST


def translated(error: BaseException) -> BaseException:
    """The store's error for what SQLite or its driver raised; anything else comes back as it is."""
    primary = code(error)
    if primary in BUSY:
        primary = sqlite3.SQLITE_BUSY
    if primary == sqlite3.SQLITE_CANTOPEN and _out_of_descriptors():
        return StoreUnavailable(
            f"the system refuses this OS process more open files; raise ulimit -n (SQLite: {error})"
        )
    if primary in _MEANING:
        kind, advice = _MEANING[primary]
        return kind(f"{advice} (SQLite: {error})")
    if not primary and isinstance(error, _REFUSED_BY_TYPE):
        return BadRecord(f"a value cannot be stored: {error}; correct the value or leave it out")
    if isinstance(error, sqlite3.Error):
        return StoreError(f"SQLite failed: {error}; run `perdure migrate` if the schema is older than this Perdure")
    return error


def _out_of_descriptors() -> bool:
    """Whether this OS process cannot open any more files: SQLite's error does not say it."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return exhausted(error) is not None
    return False
