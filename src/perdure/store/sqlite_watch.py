"""Watching on SQLite: hints of other workers, noticed by the file's data version, without a thread (rule 25)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable

from perdure.limits import SQLITE_POLL_BUSY_SECONDS, SQLITE_POLL_IDLE_SECONDS
from perdure.store.query import load
from perdure.store.sqlite_writer import Hints

Hint = Callable[[], None]

_BUSY_LOOKS = 20
"""Looks without news after which the file counts as idle."""


class Watch:
    """Calls the hints of one store object: at once for its own changes, by looking for those of others.

    The look is one PRAGMA on a connection kept for it; only when the file has changed is the clock's row read, in
    which every transaction counts its hints. What this store object has counted itself is subtracted.
    """

    def __init__(self, own: Hints, connect: Callable[[], sqlite3.Connection | None]) -> None:
        self._own = own
        self._connect = connect
        self._hearers: list[tuple[Hint, Hint]] = []
        self._connection: sqlite3.Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._read = load("sqlite")["clock_hints"]
        self._version = -1
        self._foreign = (0, 0)
        self._quiet = 0

    def add(self, due: Hint, done: Hint) -> Callable[[], None]:
        """Begin to call these two; the answer stops it."""
        hearer = (due, done)
        self._hearers.append(hearer)
        if len(self._hearers) == 1:
            self._begin()

        def stop() -> None:
            with contextlib.suppress(ValueError):
                self._hearers.remove(hearer)
            if not self._hearers:
                self.close()

        return stop

    def tell(self, due: bool, done: bool) -> None:
        """Pass on hints about changes by this very store object."""
        for hear_due, hear_done in tuple(self._hearers):
            if due:
                hear_due()
            if done:
                hear_done()

    def close(self) -> None:
        """Stop looking; nobody is called any more."""
        self._hearers.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self) -> None:
        self._connection = self._connect()
        if self._connection is not None:
            self._look(tell=False)

    def _look(self, tell: bool = True) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != self._version or self._own.doubtful:
                self._own.doubtful = False
                due, done = connection.execute(self._read).fetchone()
                foreign = (due - self._own.due, done - self._own.done)
                self._version, before, self._foreign = version, self._foreign, foreign
                self._quiet = 0
                if tell and foreign != before:
                    self.tell(foreign[0] != before[0], foreign[1] != before[1])
        except sqlite3.Error:
            self._version = -1  # busy with recovery, or out of reach: the claims' own polling goes on meanwhile
        self._quiet += 1
        delay = SQLITE_POLL_BUSY_SECONDS if self._quiet < _BUSY_LOOKS else SQLITE_POLL_IDLE_SECONDS
        if self._connection is not None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._look)
