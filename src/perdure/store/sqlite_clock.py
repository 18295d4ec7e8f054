"""The store's time on SQLite: the machine's clock, but never behind what any transaction of this database has seen."""

from __future__ import annotations

from perdure.clock import Machine


class SqliteClock:
    """Perdure's time = the greater of the machine's now and the high-water mark stored in the database.

    Every write transaction reads and raises the stored mark. ``mark`` is the latest time that this store object has
    given or read, ``stored`` the latest of which it knows that it is in the database.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.mark = 0
        self.stored = 0

    def now(self) -> int:
        """The time in microseconds; it never runs backward."""
        now = self._machine.now()
        if now > self.mark:
            self.mark = now
            return now
        return self.mark

    def saw(self, stored: int) -> int:
        """Take note of the mark in the database; the answer is the time, not before it."""
        self.stored = max(self.stored, stored)
        self.mark = max(self.mark, stored)
        return self.now()
