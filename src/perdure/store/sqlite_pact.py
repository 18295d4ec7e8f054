"""Pacts on SQLite: a connection of its own for each step with a transaction, on the store's own file."""

from __future__ import annotations

import sqlite3
import threading
from urllib.parse import quote

from perdure import limits
from perdure.clock import Machine
from perdure.errors import StoreError, StoreUnavailable
from perdure.kernel.message import Message
from perdure.store import sqlite_send
from perdure.store.pact import PactAnswer, PactVerdict
from perdure.store.query import load
from perdure.store.sqlite_clock import SqliteClock
from perdure.store.sqlite_error import translated
from perdure.store.sqlite_file import read_url
from perdure.store.sqlite_guest import Borrowed
from perdure.store.sqlite_haste import haste
from perdure.store.sqlite_lent import Lent
from perdure.store.sqlite_writer import Transaction


class SqlitePacts:
    """Makes pacts, each with a connection of its own: what a step sets on it is gone with it."""

    kind = "sqlite"
    blocking = True

    def __init__(self, url: str, machine: Machine) -> None:
        self.path = read_url(url).path or ""
        self.clock = SqliteClock(machine)

    async def take(self) -> SqlitePact:
        """A new pact; it connects when it begins."""
        return SqlitePact(self)

    async def close(self) -> None:
        """Nothing is kept."""


class SqlitePact:
    """What each method promises stands in ``store/pact.py``. All but :meth:`abandon` is called on one thread."""

    connection: Lent | None = None

    def __init__(self, pacts: SqlitePacts) -> None:
        self._pacts = pacts
        self._mutex = threading.Lock()
        self._sealed = False
        self._abandoned = False

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result with that ``id`` is there already: then the answer is False.

        The write lock is taken at once: waiting for it later, with something read, would be in vain.
        """
        try:
            lent = self.connection = self._connected()
            lent.execute(load("sqlite")["begin_immediate"])
            if Borrowed(lent).one("result_is_known", process=process, id=id):
                return False
        except sqlite3.Error as error:
            told = translated(error)
            raise told if isinstance(told, StoreUnavailable) else StoreUnavailable(str(told)) from error
        with self._mutex:
            lent.lend()
            if self._abandoned:
                raise TimeoutError("the attempt was given up before it had begun")
        return True

    def _connected(self) -> Lent:
        uri = f"file:{quote(self._pacts.path)}?mode=rw"
        lent = sqlite3.connect(uri, uri=True, timeout=limits.SQLITE_BUSY_SECONDS, factory=Lent)
        for pragma in ("foreign_keys = ON", "synchronous = FULL"):
            lent.execute(f"PRAGMA {pragma}")
        return lent

    def seal(self) -> bool:
        """The step has returned: from now on nobody can take its pact back. False if somebody has."""
        with self._mutex:
            self._sealed = not self._abandoned
        return self._sealed

    def abandon(self) -> bool:
        """Take the pact back: others have waited long enough for the write lock, whatever the step is doing."""
        with self._mutex:
            if self._sealed:
                return False
            if not self._abandoned:
                self._abandoned = True
                if self.connection is not None:
                    self.connection.take_back()
        return True

    async def keep(self, message: Message, owner: bytes, token: int) -> PactAnswer:
        """Record the result and commit, if the process has still that owner and token."""
        lent = self.connection
        if lent is None or not lent.in_transaction:
            raise StoreError(
                "SQLite has rolled the step's transaction back after an error that the step has caught. "
                "Let such errors end the step."
            )
        try:
            with lent.ours(), haste:
                borrowed = Borrowed(lent)
                if not borrowed.one("look_at_fence", process=message.process, token=token, owner=owner):
                    return PactAnswer(PactVerdict.REFUSED)
                now, alive, *_ = self._pacts.clock.opened(borrowed, due=False, done=False)
                transaction = Transaction(borrowed, now, alive)
                number = sqlite_send.send(transaction, [message])[0].number
                # If we die before or in this COMMIT, all of it is there or nothing: whoever is next looks for it.
                lent.finish()
        except sqlite3.Error as error:
            if self._looked(message):
                return PactAnswer(PactVerdict.KNOWN)
            raise translated(error) from error
        return PactAnswer(PactVerdict.KEPT, number, transaction.now)

    def _looked(self, message: Message) -> bool:
        """Whether a COMMIT that has failed was done all the same."""
        self._end()
        self.connection = self._connected()
        return bool(Borrowed(self.connection).one("result_is_known", process=message.process, id=message.id))

    async def end(self) -> None:
        """Roll back what is open, and let go of the file."""
        self._end()

    def _end(self) -> None:
        with self._mutex:  # whoever takes it back has done so by now
            lent, self.connection = self.connection, None
        if lent is not None:
            lent.end()
