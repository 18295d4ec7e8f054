"""Whether a SQLite database still goes on where it was: its line has a name, and its transactions are counted.

A backup that is put back under running workers (``.restore``, a file that replaces the file) has fewer transactions
than they were told of. Whoever sees that first draws another name for the line, in the database, so that everybody
sees it, also one who knows of fewer still.
"""

from __future__ import annotations

from perdure.errors import StoreRegressed


class SetBack(StoreRegressed):
    """The database is behind what was seen of it, or somebody has found that it is; nothing was done."""

    def __init__(self, known: str | None) -> None:
        super().__init__("the database was set back behind what was answered here; it is tried again by itself")
        self.known = known


class Line:
    """What one store object knows of the line; it is told of a transaction only after the COMMIT."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.ticks = 0

    def check(self, name: str | None, ticks: int) -> None:
        """In a transaction that has just counted itself: raises SetBack."""
        if name != self.name or ticks <= self.ticks:
            raise SetBack(self.name)

    def adopt(self, name: str | None, ticks: int) -> None:
        """Go on from here: at an opening, or when what was set back is known."""
        self.name, self.ticks = name, ticks
