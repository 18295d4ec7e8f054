"""The store's time on SQLite: the machine's clock, but never behind what any transaction of this database has seen.

The same row names the database's line and counts its transactions. A backup that is restored under running workers
(``.restore``, or a file that replaces the file) has fewer transactions than the workers have seen. The first store that
notices draws a new name for the line, in the database. So every other store notices too, even one that has seen fewer
transactions than the backup has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import convert, json

from perdure.clock import Computer
from perdure.errors import StoreRegressed
from perdure.kernel.clock import Clock, kept_lead
from perdure.store.sqlite.connection import Connection


class SqliteClock:
    """Perdure's time = the greater of the machine's now, with the lead, and the high-water mark, both in the database.

    Every write transaction reads and raises the stored mark. ``mark`` is the latest time that this store object has
    given or read, ``stored`` the latest that is known to be in the database, ``lead`` how far the time is ahead of the
    machine's clock (see ``kernel/clock.py``).
    """

    def __init__(self, machine: Computer) -> None:
        self._machine = machine
        self.mark = 0
        self.stored = 0
        self.lead = 0

    def now(self) -> int:
        """The time in microseconds; it never runs backward."""
        now = self._machine.now() + self.lead
        if now > self.mark:
            self.mark = now
            return now
        return self.mark

    def saw(self, stored: int, lead: int | None = None) -> int:
        """Take note of the mark in the database, and of the lead; the answer is the time, not before the mark."""
        if lead is not None:
            self.lead = lead
        self.stored = max(self.stored, stored)
        self.mark = max(self.mark, stored)
        return self.now()

    def opened(self, connection: Connection, *, due: bool, done: bool) -> tuple[int, str, str | None, int]:
        """Raise the mark, first in a write transaction; the answer is its time, the living workers, line and ticks.

        All that the transaction writes has that time. It is not after the mark, even if another store has changed the
        lead meanwhile.
        """
        stored, alive, lead, line, ticks = connection.one(
            "tick", mark=self.mark, machine=self._machine.now(), due=int(due), done=int(done)
        )
        self.saw(stored, lead)
        return stored, alive, line, ticks

    def beaten(self, connection: Connection) -> int:
        """In the transaction of a beat: let time go on at the clock's pace if the clock was set back; the new lead."""
        at, lead, slewed_at, mending = connection.one("clock_lead")
        machine_at = self._machine.now()
        kept = kept_lead(at, machine_at, lead, slewed_at, bool(mending))
        if kept != lead:
            connection.run("keep_lead", lead=kept, machine=machine_at)
            self.lead = kept
        elif lead == 0 and mending:
            connection.run("keep_lead", lead=0, machine=machine_at)
        return kept

    def rows(self, connection: Connection, changes: Sequence[Any] = ()) -> list[Any]:
        """The clock's row as people see it, after these changes: of each, ``mending`` counts and who changed it."""
        for change in changes:
            connection.run(
                "write_clock", version=change.version, mending=int(change.mending), changed_at=change.changed_at,
                who=change.who, why=change.why, origin=change.origin,
            )  # fmt: skip
        now = self.now()
        (packed,) = connection.one("read_clocks", now=now, machine=self._machine.now())
        return [
            convert(dict(zip(Clock.__struct_fields__, row, strict=True)), Clock, strict=False)
            for row in json.decode(packed)
        ]


class SetBack(StoreRegressed):
    """The database has lost transactions that this store saw, or another store has found that; nothing was written."""

    def __init__(self, known: str | None) -> None:
        super().__init__("the database was set back and has lost answered commits; Perdure tries again by itself")
        self.known = known


class KnownLine:
    """What one store object knows of the line; a transaction counts here only after its COMMIT."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.ticks = 0

    def check(self, name: str | None, ticks: int) -> None:
        """In a transaction that has just counted itself: raises SetBack."""
        if name != self.name or ticks <= self.ticks:
            raise SetBack(self.name)

    def adopt(self, name: str | None, ticks: int) -> None:
        """Go on with this line: at an opening, or when what was set back is known."""
        self.name, self.ticks = name, ticks
