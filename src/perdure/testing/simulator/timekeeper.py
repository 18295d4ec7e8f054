"""The law that the store's time goes on: whatever becomes of the clock, it stands still to the next beat at most.

What a worker reports of its hang is no beat: where all workers hang, nobody acts, and nobody keeps the time.
"""

from __future__ import annotations

from perdure.clock import SECOND
from perdure.kernel.process import Process
from perdure.testing.simulator.machine import WallClock
from perdure.testing.simulator.violation import Violation

SLACK_SECONDS = 1.5
"""Time waits for a clock that was put back by less than a second; a lead that shrinks takes half a second at most."""
SLOWEST = 0.4
"""At least this part of the clock's pace, also while a person has the lead shrink."""


class Timekeeper:
    """Looks at the mark of the store's clock with every beat; the first beat after a jump of the clock corrects it."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        self._jumps = -1
        self._since = (0.0, 0)
        self._ahead = 0

    def latest(self, now: float, mark: int) -> int:
        """The latest time that a worker may have by now, which carries the time on from a mark: a turn keeps it."""
        self._ahead = max(self._ahead, mark - int(now * SECOND))
        return max(self._wall.latest(), self._ahead + int(now * SECOND))

    def beaten(self, now: float, mark: int, lead: int) -> None:
        """A beat at this virtual time (seconds) has left this mark and this lead in the database; raises Violation."""
        self._wall.led(lead)
        if self._wall.jumps != self._jumps:
            self._jumps, self._since = self._wall.jumps, (now, mark)
            return
        passed, went = now - self._since[0], (mark - self._since[1]) / SECOND
        if went < SLOWEST * passed - SLACK_SECONDS:
            raise Violation(
                "time_goes_on", f"in {passed:g} s, since the clock was last set, the store's time went on by {went:g} s"
            )

    def written(self, process: Process, mark: int) -> None:
        """A transaction that left the mark there has touched this row; raises Violation."""
        if process.changed_at > mark:
            later = (process.changed_at - mark) / SECOND
            raise Violation("time_goes_on", f"{process.kind} was changed {later:g} s later than the time that is kept")

    def anew(self) -> None:
        """The database is another one: begin again with its next beat."""
        self._jumps = -1
