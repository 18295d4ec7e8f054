"""In the caller's transaction on SQLite: the store's own statements on the caller's sqlite3 connection."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.clock import Computer
from perdure.errors import InvalidInput
from perdure.kernel.commit import Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer
from perdure.store.query import load
from perdure.store.sqlite import row, send
from perdure.store.sqlite import start as sqlite_start
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.error import translated
from perdure.store.sqlite.file import read_url
from perdure.store.sqlite.writer import Transaction

T = TypeVar("T")


class CallersConnection(Connection):
    """The caller's connection: its settings are not changed, and its row factory is not used here."""

    raw: Any

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = load("sqlite")
        self._sized = {}
        self._alone = {}
        self.in_memory = False
        self.raw = connection.cursor()
        self.raw.row_factory = None


def connection_behind(given: Any) -> sqlite3.Connection:
    """The sqlite3 connection behind one of SQLAlchemy (or a session), or itself; raises InvalidInput for others."""
    if hasattr(given, "get_bind"):  # a session
        given = given.connection()
    raw = getattr(getattr(given, "connection", None), "driver_connection", given)
    if raw is not given and not getattr(raw, "in_transaction", True):
        given.exec_driver_sql(load("sqlite")["begin_immediate"])  # so that SQLAlchemy knows it, and commits
    if not isinstance(raw, sqlite3.Connection):
        raise InvalidInput(
            f"a connection of type {type(given).__name__} cannot be used with a SQLite store. "
            "Give one that sqlite3.connect made on the same file."
        )
    return raw


class SqliteInTransaction:
    """What each method promises stands in ``store/in_transaction.py``.

    The caller's connection needs no settings of ours.
    """

    blocking = True

    def __init__(self, url: str, given: Any, machine: Computer) -> None:
        self._clock = SqliteClock(machine)
        self._connection = connection_behind(given)
        self._borrowed = CallersConnection(self._connection)
        path = read_url(url).path
        if path is None:
            raise InvalidInput("a database in memory belongs to its store alone. Use a file: sqlite:///shop.db")
        (main,) = self._borrowed.one("main_file")
        if not main or not os.path.exists(path) or not os.path.samefile(main, path):
            raise InvalidInput(
                f"this connection is to {main or 'memory'}, the store is {path}. Connect to the same file: "
                "a transaction over two files can be torn by a crash."
            )

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process. A second start with the same (kind, key) changes nothing (rule 24)."""
        process = start.process
        if process.attributes is not None:
            row.check_attributes(process.attributes)

        def body(transaction: Transaction) -> StartAnswer:
            deadline = None if process.deadline is None else transaction.now + process.deadline
            dated = replace(start, process=replace(process, deadline=deadline))
            return sqlite_start.start(transaction, [dated])[0]

        return self._write(body)

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox."""
        return self._write(lambda transaction: send.admit(transaction, [message])[0])

    def _write(self, body: Callable[[Transaction], T]) -> T:
        """Run ``body`` in the caller's transaction, whole or not at all; raise the clock and leave workers a hint."""
        try:
            self._begin()
            self._borrowed.one("begin_guest")
            try:
                now, alive, *_ = self._clock.opened(self._borrowed, due=True, done=False)
                answer = body(Transaction(self._borrowed, now, alive))
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself rolls back where the disk is full, for instance
                    self._borrowed.one("undo_guest")
                    self._borrowed.one("keep_guest")
                raise
            self._borrowed.one("keep_guest")
        except Exception as error:
            told = translated(error)
            if told is error:
                raise
            raise told from error
        return answer

    def _begin(self) -> None:
        """Begin a transaction if none is open: a driver that begins them by itself does so only at the first write."""
        if self._connection.in_transaction:
            return
        # Since Python 3.12 a connection may have the attribute `autocommit`, which then counts alone.
        if self._connection.isolation_level is None or getattr(self._connection, "autocommit", None) is True:
            raise InvalidInput(
                "this connection has no transaction. Begin one first, with BEGIN IMMEDIATE: what is written here "
                "belongs to the caller's transaction."
            )
        self._borrowed.one("begin_immediate")
