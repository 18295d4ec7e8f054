"""A leader: of all programs that ask, the one that may deal with a matter now, for as long as its lease lasts.

The lease is a row of the store with an end by the store's clock. Every change is written over the version that was
read, so of two candidates one wins. All that is decided about a row is decided here.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import microseconds


class Leader(Struct, frozen=True, gc=False):
    """One row of the table ``leader``. Times are microseconds by the store's clock.

    The asking ``candidate`` (an id) of a ``program`` leads from ``since`` on, until ``until`` unless it renews that.
    ``term`` counts the leaders: each has a higher one than all before it. ``released`` says that a person has asked
    the leader to stop: ``who``, ``why`` and ``origin`` describe that, made at ``changed_at``.
    """

    name: str
    version: int = 0
    term: int = 0
    candidate: str = ""
    program: str = ""
    since: int = 0
    until: int = 0
    released: bool = False
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""

    def leads(self, now: int) -> bool:
        """Whether the lease lasts; an end further ahead than any lease is not believed: the clock was set back."""
        return now < self.until <= now + microseconds(limits.LEADER_LONGEST_SECONDS)


def won(row: Leader, candidate: str, program: str, now: int, lease: int) -> Leader | None:
    """The row once the candidate leads, in a new term; None while another one leads."""
    if row.leads(now):
        return None
    return replace(
        row, version=row.version + 1, term=row.term + 1, candidate=candidate, program=program, since=now,
        until=now + lease, released=False,
    )  # fmt: skip


def renewed(row: Leader, now: int, lease: int) -> Leader:
    """The row with a longer lease: its term goes on."""
    return replace(row, version=row.version + 1, until=now + lease)


def vacated(row: Leader, now: int) -> Leader:
    """The row once its leader has ended its work: another one may lead at once."""
    return replace(row, version=row.version + 1, until=min(row.until, now))


def called_off(row: Leader) -> Leader:
    """The row once a person has asked its leader to stop; the lease lasts, so that no other leads meanwhile."""
    return replace(row, version=row.version + 1, released=True)
