"""The store's time beside the clock of its machine: how far it leads, and how the two come together again.

The store's time never runs backward. Where the machine's clock is put back (it had been ahead for a moment, or another
server with another clock has taken over) the time goes on from where it was, at the clock's pace: it *leads* by so
much from then on. The lead shrinks by itself, so slowly that no timer notices; a person may have it shrink faster.
"""

from __future__ import annotations

from msgspec import Struct

from perdure.clock import SECOND

STEP = SECOND
"""Microseconds by which a clock must have been put back before the time goes on without it; up to that it waits."""
SLEWED = 100
"""So much slower than the clock the time runs while it leads: by one part in so many."""
MENDED = 2
"""The same where a person has asked for it."""
MOST = SECOND // 2
"""With one beat the lead shrinks by no more: for so long the time stands still, and that must not look like a step."""


class Clock(Struct, frozen=True, gc=False):
    """The one row of the table ``clock``, as people see it; all in microseconds.

    ``at`` is the store's time, ``machine_at`` what the clock of its machine shows. ``lead`` is how far the first was
    put before the second, ``lead_since`` when that began. While ``mending`` a person has it shrink at half the pace of
    the clock; ``who``, ``why`` and ``origin`` are of that order.
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
    """The lead from a beat on, where ``at`` is the mark of the store's time; ``slewed_at`` when this was last decided.

    PostgreSQL does the same in SQL (functions/beat.sql), and the conformance suite compares.
    """
    behind = at - (machine_at + lead)
    if behind > STEP:
        return lead + behind
    if lead <= 0:
        return 0
    elapsed = max(machine_at - slewed_at, 0)
    return max(lead - min(elapsed // (MENDED if mending else SLEWED), MOST), 0)
