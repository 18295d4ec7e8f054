"""Watching on SQLite: the commits of other stores are known from their hints, and from the file's data version.

No thread is needed for it (rule 25). A look at the data version is the safety net: it finds a change without a hint.
Where hints can be received, the looks are rare; where not, one follows every few milliseconds.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

from perdure.limits import SQLITE_POLL_BUSY_SECONDS, SQLITE_POLL_IDLE_SECONDS, SQLITE_POLL_RUNG_SECONDS
from perdure.store.notifications import Listener, Listeners, Notification, StopListening
from perdure.store.query import load
from perdure.store.sqlite.notify import Hint, Notifier
from perdure.store.sqlite.writer import Hints

_BUSY_LOOKS = 20
"""Looks without a change after which the file counts as idle."""


class Watch:
    """Notifies the listeners of one store object: at once of its own changes and of what hints of others say.

    The look is one PRAGMA on a connection kept for it. Only when the file has changed is the clock's row read, in
    which every transaction counts its hints. Hints that this object has counted itself, or that a hint named, are
    left out.
    """

    def __init__(self, own: Hints, notifier: Notifier, connect: Callable[[], sqlite3.Connection | None]) -> None:
        self._own = own
        self._notifier = notifier
        self._connect = connect
        self._listeners = Listeners()
        self._connection: sqlite3.Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._read = load("sqlite")["clock_hints"]
        self._version = -1
        self._foreign = (0, 0)
        self._quiet = 0
        self._listening = False

    def add(self, listener: Listener) -> StopListening:
        """Notify this listener from now on; the answer stops that."""
        begin = not self._listeners
        leave = self._listeners.add(listener)
        if begin:
            self._begin()

        def stop() -> None:
            leave()
            if not self._listeners:
                self.close()

        return stop

    def notify(self, notification: Notification) -> None:
        """Pass on what has changed."""
        self._listeners.notify(notification)

    def close(self) -> None:
        """Stop looking; nobody is called any more."""
        self._listeners.clear()
        self._notifier.stop_listening()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self) -> None:
        self._connection = self._connect()
        if self._connection is not None:
            self._listening = self._notifier.listen(self._heard)
            self._look(notify=False)

    def _heard(self, hints: list[Hint], missed: bool) -> None:
        due, done = self._foreign
        self._foreign = (due + sum(hint.due for hint in hints), done + sum(hint.done for hint in hints))
        for hint in hints:
            self.notify(hint.notification)
        if missed:
            if self._timer is not None:
                self._timer.cancel()
            self._version = -1
            self._look()

    def _look(self, notify: bool = True) -> None:
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
                if notify:  # published values leave no count: any change may be one, where no hint tells of them
                    due, done = foreign[0] != before[0], foreign[1] != before[1]
                    self.notify(Notification(some_due=due, some_done=done, some_published=not self._listening))
        except sqlite3.Error:
            self._version = -1  # busy with recovery, or out of reach: the claims' own polling goes on meanwhile
        self._quiet += 1
        delay = SQLITE_POLL_BUSY_SECONDS if self._quiet < _BUSY_LOOKS else SQLITE_POLL_IDLE_SECONDS
        if self._listening:
            delay = SQLITE_POLL_RUNG_SECONDS
        if self._connection is not None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._look)
