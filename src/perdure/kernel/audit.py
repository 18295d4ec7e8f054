"""The audit: how far the checks in the background have come on their way round all processes, in a row of the store.

All workers share it. The row is due like everything else: when its time has come, one worker takes the next page, and
if that worker dies, the row falls due again and another one goes on from the same place.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, json
from msgspec.structs import replace

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel.stored import Garbled

NAME = "background"


ALL = ""
"""What stands in place of a kind for processes of all kinds: one whose kind cannot be read is not found by its kind."""


class Audit(Struct, frozen=True, gc=False):
    """The one row of the table ``audit``. Times are microseconds by the store's clock.

    ``worker`` has the page that is examined now; if it is not done by ``due_at``, another one takes it. ``place`` is a
    JSON array of the kinds that this round has not done with: the next one first, each with the id (hexadecimal) behind
    which its next page begins. The round began at ``begun_at``; ``checked`` processes were examined in it, ``found``
    findings made. ``rounds`` were completed, the last one at ``ended_at``. ``line`` is the line of the database
    that was seen last, ``line_now`` the one that it is on, which only the store writes.
    """

    name: str = NAME
    version: int = 0
    due_at: int = 0
    worker: str = ""
    place: str = "[]"
    begun_at: int = 0
    checked: int = 0
    found: int = 0
    rounds: int = 0
    ended_at: int | None = None
    line: str = ""
    line_now: str = ""

    def is_due(self, now: int) -> bool:
        """Whether a worker may take the next page. A time too far ahead is not believed: a clock was set back."""
        return not now < self.due_at <= now + microseconds(limits.CHECK_ROUND_SECONDS)

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """The kinds to come, each with the id behind which it goes on; empty for its first page."""
        return json.decode(self.place, type=list[tuple[str, str]])


def taken(row: Audit, worker: str, now: int) -> Audit:
    """The row once a worker has taken the next page."""
    due_at = now + microseconds(limits.CHECK_LEASE_SECONDS)
    return replace(row, version=row.version + 1, worker=worker, due_at=due_at)


def opened(row: Audit, kinds: Iterable[str], now: int) -> Audit:
    """The row at the beginning of a round over these kinds; over all at once if one of them cannot be read."""
    names = set(kinds)
    if any(isinstance(kind, Garbled) for kind in names):
        names = {ALL}
    place = json.encode([(kind, "") for kind in sorted(names)]).decode()
    return replace(row, place=place, begun_at=now, checked=0, found=0)


def moved(row: Audit, before: bytes | None, *, checked: int, found: int, now: int, wait: int) -> Audit:
    """The row once a page of the first kind is done; ``before`` is where that kind goes on, None if it is done.

    The kind goes to the end of the line, so a kind of ten processes does not wait for one of a million. The next page
    is due after ``wait`` microseconds; the next round, at the earliest, some minutes after this one began.
    """
    (kind, _), *others = row.kinds
    left = [*others, (kind, before.hex())] if before is not None else others
    after = replace(
        row, version=row.version + 1, worker="", place=json.encode(left).decode(), due_at=now + wait,
        checked=row.checked + checked, found=row.found + found,
    )  # fmt: skip
    return after if left else ended(after, now)


def ended(row: Audit, now: int) -> Audit:
    """The row at the end of a round: nothing is left."""
    next_round = row.begun_at + microseconds(limits.CHECK_ROUND_SECONDS)
    return replace(row, worker="", place="[]", rounds=row.rounds + 1, ended_at=now, due_at=max(row.due_at, next_round))
