"""A round: what one pass of a sweep reads and leaves alone. What the pass calls adds to the round under way."""

from __future__ import annotations

from contextvars import ContextVar


class SweepRound:
    """One pass of a sweep: since when it is under way, how many rows it has ``seen`` and ``left`` alone."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.seen = 0
        self.left = 0

    def saw(self, rows: int) -> None:
        """It has read so many rows."""
        self.seen += rows

    def leave(self, rows: int) -> None:
        """It leaves so many rows alone."""
        self.left += rows


_round: ContextVar[SweepRound | None] = ContextVar("round", default=None)


def began(since: float) -> SweepRound:
    """Begin a round at this monotonic time; it is the one under way in the task that asks."""
    begun = SweepRound(since)
    _round.set(begun)
    return begun


def saw(rows: int) -> None:
    """The round under way has read so many rows."""
    if (under_way := _round.get()) is not None:
        under_way.saw(rows)


def left(rows: int) -> None:
    """The round under way has found so many rows, and leaves them alone for now."""
    if (under_way := _round.get()) is not None:
        under_way.leave(rows)
