"""The context of a sweep: what each sweep is given to do its round, and the rows it must look at, page after page."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND
from perdure.errors import StoreUnavailable
from perdure.exhaustion import exhausted
from perdure.futures import asked
from perdure.kernel.child import beforehand, portions, without_orders
from perdure.kernel.commit import Commit, CommitAnswer, Verdict
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.queue import Queue
from perdure.kernel.soundness import Finding
from perdure.kernel.worker import WorkerRow
from perdure.logs import logger
from perdure.runtime.events import WorkerEvents
from perdure.runtime.parts import WorkerParts
from perdure.runtime.release import written
from perdure.runtime.rescue import granted
from perdure.runtime.sweep_round import left, saw
from perdure.store.base import FoundRows, Overdue, Pruned, Search, Store, switch

if TYPE_CHECKING:
    from perdure.retention.remover import RetentionRound

log = logger("recovery")


class SweepContext:
    """The store, the committer, the clock and the counters. Sweeps decide by the kernel and write by commits.

    ``events`` go to the worker: what a sweep has found, and which rows it took from their owners. ``pages`` are the
    overdue rows, for each way of being so, with the place that the sweep has reached; ``pruned`` is what was removed
    last, and where to go on. If the worker has rules of retention, ``remover`` removes by these, and
    ``ruled`` is what it has done last.
    ``paces`` are the seconds between two passes of those sweeps for which they were set, ``missing`` the kinds that may
    begin again by themselves.
    """

    def __init__(self, parts: WorkerParts, events: WorkerEvents) -> None:
        self.incarnation = parts.incarnation
        self.store = parts.store
        self.registry = parts.registry
        self.committer = parts.committer
        self.time = parts.time
        self.machine = parts.machine
        self.telemetry = parts.telemetry
        self.alerts = parts.alerts
        self.engine = parts.engine
        self.check_rate = parts.check_rate
        self.paces = parts.sweep_paces
        self.missing = parts.missing
        self.grace = parts.grace
        self.events = events
        self.retention = parts.options.retention_seconds
        self.key_retention = parts.options.key_retention_seconds
        self.pruned = Pruned(0, 0)
        self.remover = parts.remover
        self.ruled: RetentionRound | None = None
        self.pages = {what: Pages(self.store, what) for what in Overdue}
        self._workers: list[WorkerRow] = []
        self._workers_at = -math.inf
        self._left: set[str] = set()
        self._waiting: set[str] = set()
        self._undecided: dict[bytes, int] = {}

    async def workers(self, seconds: float = 0.0) -> list[WorkerRow]:
        """The incarnations that have not ended, as they were at most so many seconds ago."""
        now = self.time.monotonic()
        if now - self._workers_at >= seconds:
            self._workers = await self.store.workers()
            self._workers_at = now
            saw(len(self._workers))
        return self._workers

    def offers(self) -> list[bytes]:
        """The offers of the other incarnations that have not ended, as last read."""
        return [worker.hosts for worker in self._workers if worker.id != self.incarnation.id]

    @contextmanager
    def each(self, row: Process, *through: type[Exception]) -> Iterator[None]:
        """Report an error inside the block once, as one of this row, so that it keeps no other row waiting.

        Errors in ``through`` are raised: they are not the row's own, such as StoreUnavailable where the store is asked.
        """
        try:
            yield
        except Exception as error:
            if exhausted(error) or isinstance(error, through):
                raise
            self._left_alone(row, row.version, "nothing can be decided about it", error)

    def _left_alone(self, row: Process, version: int, why: str, error: Exception) -> None:
        """Report, once for each version of a row, that it is left as it is."""
        if self._undecided.get(row.id) == version:
            return
        if len(self._undecided) >= limits.SWEEP_ROWS:
            self._undecided.clear()
        self._undecided[row.id] = version
        text = (
            f"process {id_text(row.id)} ({row.kind}) is left as it is, since {why}: "
            f"{type(error).__name__}: {error}. Look at it with `perdure show`; `perdure terminate` ends it"
        )
        self.telemetry.count("records_unsound")
        self.events.found(Finding("row_undecided", row.id, text))

    async def may_recover(self, found: str, rows: int) -> bool:
        """Whether a sweep may recover what it found; while recovery is paused, it is only reported, once."""
        return not self._paused(await switch(self.store), found, rows)

    async def revivable(
        self, pages: Pages, found: str, hosted: Container[tuple[str, str]] = frozenset()
    ) -> list[Process]:
        """The rows of the next page that may be revived now: none while recovery is paused, few if its budget is spent.

        Those of ``hosted`` kinds and versions are left to claims, unless there is a budget, which claims do not spend.
        """
        rows = await pages.next()
        if not rows:
            return []
        row = await switch(self.store)
        if self._paused(row, found, len(rows)):
            pages.rewind()
            return []
        if row.rate is None:
            return [one for one in rows if (one.kind, one.code) not in hosted]
        many = await granted(self.store, row, len(rows), self.incarnation.id)
        if many == len(rows):
            self._waiting.discard(found)
            return rows
        pages.back_to(rows, many)
        left(len(rows) - many)
        if found not in self._waiting:
            self._waiting.add(found)
            text = "%s: at least %d wait, since workers revive %d in %g s at most. `perdure recovery` shows more"
            log.warning(text, found, len(rows) - many, row.rate, row.per / SECOND)
        return rows[:many]

    def _paused(self, row: Queue, found: str, rows: int) -> bool:
        if row.blocked_at is None:
            self._left.clear()
            return False
        left(rows)
        if found not in self._left:
            self._left.add(found)
            why = row.blocked_why or "(no reason given)"
            by = f"automatic recovery is paused by {row.blocked_by or 'somebody'} because: {why}"
            log.warning("%s: left alone, since %s. `perdure recovery resume` ends it", found, by)
        return True

    async def _written(self, commit: Commit) -> tuple[Commit, CommitAnswer]:
        letters = beforehand(commit.sends)
        # If we die here some of many children have heard of their parent's end before it: the parent is held, over its
        # deadline, and the next round ends it.
        for portion in portions(letters):
            await asyncio.gather(*(asked(self.committer.send, letter) for letter in portion))
        if letters:
            commit = replace(commit, sends=without_orders(commit.sends))
        return await written(self.committer, commit)

    async def write(self, commits: Sequence[Commit]) -> list[Commit]:
        """Write commits, and return those that were applied, as they were written.

        A lost race is no error and is not counted. What the database refuses is reported, and keeps no other waiting.
        """
        given = await asyncio.gather(*(self._written(commit) for commit in commits), return_exceptions=True)
        applied = []
        for commit, answer in zip(commits, given, strict=True):
            if isinstance(answer, tuple):
                if answer[1].verdict is Verdict.APPLIED:
                    applied.append(answer[0])
                    if commit.after.token > commit.token:
                        self.events.taken(commit.after.id, commit.after.token)
            elif not isinstance(answer, Exception):
                raise answer
            elif not isinstance(answer, StoreUnavailable):  # else it is no fault of the row, and the next round tries
                self._left_alone(commit.after, commit.version, "what was decided about it cannot be written", answer)
        return applied


class Pages:
    """How far a sweep has come among the rows that are overdue in one way.

    A page is full if it has SWEEP_ROWS rows, or as many bytes as one answer holds.
    The next round goes on behind the last row of a full page, whatever became of the rows before it: those that cannot
    be freed now, or need not be, hide no others. After the last page comes the first.
    """

    def __init__(self, store: Store, what: Overdue, owner: bytes | None = None) -> None:
        self._store = store
        self._what = what
        self._owner = owner
        self._after: tuple[int, bytes] | None = None
        self._before: tuple[int, bytes] | None = None
        self._after_pair: tuple[str, str] | None = None
        self._waits = False
        self._left: float = 0

    @property
    def more(self) -> bool:
        """Whether the last page was full, so that there may be another one behind it, which need not wait."""
        return not self._waits and (self._after is not None or self._after_pair is not None)

    @property
    def left(self) -> float:
        """How many rows there may be behind the last page, if these need not wait."""
        return self._left if self.more else 0

    async def next(self) -> FoundRows:
        """Read the next page."""
        limit = limits.SWEEP_ROWS
        self._before, self._waits = self._after, False
        rows = await self._store.search(
            Search(overdue=self._what, owner=self._owner, limit=limit, after=self._after, after_pair=self._after_pair)
        )
        saw(len(rows))
        self._left = rows.left if rows.in_all < limit else math.inf
        self.rewind()
        if self._what is Overdue.UNHOSTED:
            pairs = {(row.kind, row.code) for row in rows}
            self._after_pair = max(pairs, key=_bytes) if len(pairs) >= limit or rows.left else None
        elif len(rows) >= limit or rows.left:
            self._after = _key(self._what, rows[-1])
        return rows

    def back_to(self, rows: Sequence[Process], many: int) -> None:
        """Of the last page only the first ``many`` rows were dealt with: the next page begins behind these."""
        self._after = _key(self._what, rows[many - 1]) if many else self._before
        self._waits = True

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
