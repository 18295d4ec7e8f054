"""Step transactions on SQLite: each has a guarded connection of its own to the store's file, used by one thread.

A step writes through that connection, in a transaction that only Perdure can end, and can take back. SQLite has one
writer: a step that hangs while it has the write lock would block all others. So another thread may roll the step's
transaction back, at any moment between two calls; for that, every call takes one lock. After that nothing more is
written through this connection.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from perdure import limits
from perdure.clock import Computer
from perdure.errors import Permanent, StoreError, StoreUnavailable
from perdure.kernel.message import Message
from perdure.store.query import load
from perdure.store.sqlite import send
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.error import translated
from perdure.store.sqlite.file import read_url
from perdure.store.sqlite.in_transaction import CallersConnection
from perdure.store.sqlite.thread import switch_interval
from perdure.store.sqlite.writer import Transaction
from perdure.store.step_transaction import StepTransactionAnswer, StepTransactionVerdict

LOOK_INSTRUCTIONS = 50_000
"""After so many instructions a long statement looks whether its transaction was taken back: about every millisecond."""
_ADVICE = "Leave that to Perdure: return to commit, raise to roll back."


class GuardedCursor(sqlite3.Cursor):
    """A cursor whose calls fail once the transaction is taken back."""

    connection: GuardedConnection

    def execute(self, *given: Any) -> GuardedCursor:
        """See sqlite3."""
        with self.connection.passing():
            return super().execute(*given)

    def executemany(self, *given: Any) -> GuardedCursor:
        """See sqlite3."""
        with self.connection.passing():
            return super().executemany(*given)

    def executescript(self, script: str) -> GuardedCursor:
        """Refused: it begins with a COMMIT."""
        raise Permanent("executescript() commits what was written before it. Execute the statements one by one.")

    def fetchone(self) -> Any:
        """See sqlite3."""
        with self.connection.passing():
            return super().fetchone()

    def fetchmany(self, *given: Any, **named: Any) -> list[Any]:
        """See sqlite3."""
        with self.connection.passing():
            return super().fetchmany(*given, **named)

    def fetchall(self) -> list[Any]:
        """See sqlite3."""
        with self.connection.passing():
            return super().fetchall()

    def __next__(self) -> Any:
        with self.connection.passing():
            return super().__next__()


class GuardedConnection(sqlite3.Connection):
    """A connection whose transaction is begun and ended by Perdure alone."""

    def __init__(self, path: str, **settings: Any) -> None:
        self._lock = threading.RLock()
        self._ours = True
        self.taken_back = False
        super().__init__(path, isolation_level="IMMEDIATE", check_same_thread=False, **settings)

    def cursor(self, factory: Any = None) -> Any:
        """See sqlite3; every cursor is a guarded one."""
        return super().cursor(GuardedCursor)

    def execute(self, *given: Any) -> GuardedCursor:
        """See sqlite3."""
        made: GuardedCursor = self.cursor().execute(*given)
        return made

    def executemany(self, *given: Any) -> GuardedCursor:
        """See sqlite3."""
        made: GuardedCursor = self.cursor().executemany(*given)
        return made

    def executescript(self, script: str) -> GuardedCursor:
        """Refused: it begins with a COMMIT."""
        made: GuardedCursor = self.cursor().executescript(script)
        return made

    def commit(self) -> None:
        """Refused: the step's return commits."""
        raise Permanent(f"a step does not commit its own transaction. {_ADVICE}")

    def rollback(self) -> None:
        """Refused: the step's error rolls back."""
        raise Permanent(f"a step does not roll its own transaction back. {_ADVICE}")

    def close(self) -> None:
        """Refused: the connection is Perdure's."""
        raise Permanent(f"a step does not close the connection that it was lent. {_ADVICE}")

    def __enter__(self) -> GuardedConnection:
        raise Permanent(f"`with connection:` would commit at its end. {_ADVICE}")

    # -- what only Perdure calls -----------------------------------------------------------------------------------

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Enclose every call: none is made while the transaction is taken back, nor after."""
        try:
            with self._lock:
                if self._wanted_back():
                    raise TimeoutError("this attempt was given up and rolled back; return, nothing of it counts")
                yield
        finally:
            if self._wanted_back():
                self._roll_back()  # the thread that took it back did not wait for the end of this call

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Enclose Perdure's own statements: only they may begin and end a transaction."""
        with self._lock:
            before, self._ours = self._ours, True
            try:
                yield
            finally:
                self._ours = before

    def guard(self) -> None:
        """Give the connection to the step. SQLite prepares its statements anew, so the authorizer sees all of them."""
        self.set_authorizer(self._authorized)
        self.set_progress_handler(self._wanted_back, LOOK_INSTRUCTIONS)
        self._ours = False

    def take_back(self) -> None:
        """Roll back, at the end of a call that is under way; nothing is written any more. Never waits.

        sqlite3's own interrupt() would not do: it interrupts the ROLLBACK too while a cursor still has rows.
        """
        self.taken_back = True
        self._roll_back()

    def _wanted_back(self) -> bool:
        return self.taken_back and not self._ours

    def _roll_back(self) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            with self.ours():
                super().rollback()
        except sqlite3.Error:
            return  # it was rolled back before
        finally:
            self._lock.release()

    def finish(self) -> None:
        """Commit."""
        with self.ours():
            super().commit()

    def end(self) -> None:
        """Roll back what is still open, and let go of the file."""
        with self.ours():
            self.set_authorizer(None)
            self.set_progress_handler(None, 0)
            super().close()

    def _authorized(self, action: int, *names: Any) -> int:
        """Answer SQLite when it prepares a statement: only Perdure may begin and end a transaction."""
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION and not self._ours else sqlite3.SQLITE_OK


class SqliteStepTransactions:
    """Makes transactions, each with a connection of its own: settings that a step changes end with its connection."""

    blocking = True

    def __init__(self, url: str, machine: Computer) -> None:
        self.path = read_url(url).path or ""
        self.clock = SqliteClock(machine)

    async def take(self) -> SqliteStepTransaction:
        """A new transaction; it connects when it begins."""
        return SqliteStepTransaction(self)

    async def close(self) -> None:
        """Nothing is kept."""


class SqliteStepTransaction:
    """What each method promises stands in ``store/step_transaction.py``.

    All methods but :meth:`abandon` are called on one thread.
    """

    connection: GuardedConnection | None = None

    def __init__(self, step_transactions: SqliteStepTransactions) -> None:
        self._step_transactions = step_transactions
        self._mutex = threading.Lock()
        self._returned = False
        self._abandoned = False

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result with that ``id`` is there already: then the answer is False.

        The write lock is taken at once: SQLite refuses it later to a transaction whose reads are out of date.
        """
        try:
            guarded = self.connection = self._connected()
            guarded.execute(load("sqlite")["begin_immediate"])
            if CallersConnection(guarded).one("result_is_known", process=process, id=id):
                return False
        except sqlite3.Error as error:
            told = translated(error)
            raise told if isinstance(told, StoreUnavailable) else StoreUnavailable(str(told)) from error
        with self._mutex:
            guarded.guard()
            if self._abandoned:
                raise TimeoutError("the attempt was given up before it had begun")
        return True

    def _connected(self) -> GuardedConnection:
        uri = f"file:{quote(self._step_transactions.path)}?mode=rw"
        guarded = sqlite3.connect(uri, uri=True, timeout=limits.SQLITE_BUSY_SECONDS, factory=GuardedConnection)
        for pragma in ("foreign_keys = ON", "synchronous = FULL"):
            guarded.execute(f"PRAGMA {pragma}")
        return guarded

    def mark_returned(self) -> bool:
        """Note that the step has returned: its transaction cannot be abandoned any more. False if it has been."""
        with self._mutex:
            self._returned = not self._abandoned
        return self._returned

    def abandon(self) -> bool:
        """Take the transaction back: others have waited long enough for the write lock, whatever the step is doing."""
        with self._mutex:
            if self._returned:
                return False
            if not self._abandoned:
                self._abandoned = True
                if self.connection is not None:
                    self.connection.take_back()
        return True

    async def keep(self, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        """Record the result and commit, if the process still has that owner and token."""
        guarded = self.connection
        if guarded is None or not guarded.in_transaction:
            raise StoreError(
                "SQLite has rolled the step's transaction back after an error that the step has caught. "
                "Let such errors end the step."
            )
        try:
            with guarded.ours(), switch_interval:
                borrowed = CallersConnection(guarded)
                if not borrowed.one("look_at_fence", process=message.process, token=token, owner=owner):
                    return StepTransactionAnswer(StepTransactionVerdict.REFUSED)
                now, alive, *_ = self._step_transactions.clock.opened(borrowed, due=False, done=False)
                transaction = Transaction(borrowed, now, alive)
                number = send.send(transaction, [message])[0].number
                # If we die before or in this COMMIT, all of it is there or nothing: the next worker looks for it.
                guarded.finish()
        except sqlite3.Error as error:
            if self._looked(message):
                return StepTransactionAnswer(StepTransactionVerdict.KNOWN)
            raise translated(error) from error
        return StepTransactionAnswer(StepTransactionVerdict.KEPT, number, transaction.now)

    def _looked(self, message: Message) -> bool:
        """Whether a COMMIT that raised an error was done nevertheless."""
        self._end()
        self.connection = self._connected()
        return bool(CallersConnection(self.connection).one("result_is_known", process=message.process, id=message.id))

    async def end(self) -> None:
        """Roll back what is open, and let go of the file."""
        self._end()

    def _end(self) -> None:
        with self._mutex:  # an abandon() that is under way is finished first
            guarded, self.connection = self.connection, None
        if guarded is not None:
            guarded.end()
