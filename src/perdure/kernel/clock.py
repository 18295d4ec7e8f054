"""The store's time beside the clock of its machine: how far it leads, and how the two come together again.

The store's time never runs backward. Where the machine's clock is put back (it had been ahead for a moment, or another
server with another clock has taken over) the time goes on from where it was, at the clock's pace: from then on it
*leads* the clock. The lead shrinks by itself, so slowly that no timer notices; a person may have it shrink faster.
"""

from __future__ import annotations

from msgspec import Struct

from perdure.clock import SECOND

STEP = SECOND
"""If a clock was put back by more microseconds than this, the time goes on without it; up to that, the time waits."""
SLEWED = 100
"""While the time leads, it runs slower than the clock by one part in so many."""
MENDED = 2
"""The same after a person's order to shrink the lead faster."""
MOST = SECOND // 2
"""One beat shrinks the lead by at most so much: the time stands still for as long, which must not look like a step."""


class Clock(Struct, frozen=True, gc=False):
    """The one row of the table ``clock``, as people see it; all in microseconds.

    ``at`` is the store's time, ``machine_at`` what the clock of its machine shows. ``lead`` is how far the store's time
    was put ahead of that clock, ``lead_since`` when that began. While ``mending``, by a person's order, the lead
    shrinks at half the pace of the clock; ``who``, ``why`` and ``origin`` describe that order.
    """

    name: str
    version: int = 0
    at: int = 0
    machine_at: int = 0
    lead: int = 0
    lead_since: int | None = None
    mending: bool = False
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""


def kept_lead(at: int, machine_at: int, lead: int, slewed_at: int, mending: bool) -> int:
    """The lead after a beat; ``at`` is the stored mark of the store's time, ``slewed_at`` when the lead was last set.

    PostgreSQL does the same in SQL (functions/beat.sql), and the conformance suite compares.
    """
    behind = at - (machine_at + lead)
    if behind > STEP:
        return lead + behind
    if lead <= 0:
        return 0
    elapsed = max(machine_at - slewed_at, 0)
    return max(lead - min(elapsed // (MENDED if mending else SLEWED), MOST), 0)
