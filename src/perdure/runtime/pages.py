"""Pages: the rows that a sweep must look at, a bounded page a round, by their keys, and from the first on again."""

from __future__ import annotations

from perdure import limits
from perdure.kernel.process import Process
from perdure.store.base import Overdue, Search, Store


class Pages:
    """Where a sweep is among the rows that are overdue in one way.

    The next round goes on behind the last row of a full page, whatever became of the rows before it: those that cannot
    be freed now, or need not be, hide nobody. After the last page comes the first.
    """

    def __init__(self, store: Store, what: Overdue, owner: bytes | None = None) -> None:
        self._store = store
        self._what = what
        self._owner = owner
        self._after: tuple[int, bytes] | None = None
        self._after_pair: tuple[str, str] | None = None

    @property
    def more(self) -> bool:
        """Whether the last page was full, so that there may be another one behind it."""
        return self._after is not None or self._after_pair is not None

    async def next(self) -> list[Process]:
        """Read the next page."""
        limit = limits.SWEEP_ROWS
        rows = await self._store.search(
            Search(overdue=self._what, owner=self._owner, limit=limit, after=self._after, after_pair=self._after_pair)
        )
        self.rewind()
        if self._what is Overdue.UNHOSTED:
            pairs = {(row.kind, row.code) for row in rows}
            self._after_pair = max(pairs, key=_bytes) if len(pairs) >= limit else None
        elif len(rows) >= limit:
            self._after = _key(self._what, rows[-1])
        return rows

    def rewind(self) -> None:
        """Begin with the first page again."""
        self._after = self._after_pair = None


def _key(what: Overdue, row: Process) -> tuple[int, bytes]:
    """What the rows are ordered by; inboxes only by the id."""
    at = row.deadline if what is Overdue.EXPIRED else row.due_at
    return (at or 0, row.id)


def _bytes(pair: tuple[str, str]) -> tuple[bytes, bytes]:
    """A pair as databases order it."""
    return (pair[0].encode(), pair[1].encode())
