"""What is due for a claim on SQLite, seen without a lock or under it, and how a claim is shared out.

Each queue with limits and all else together get equal parts of a claim, and so do, of all else, each kind with limits
and all other kinds together. What one of them leaves goes to the next ones; at each time another one comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, TypeAlias

from msgspec import Struct, json

from perdure import limits
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.claim import KINDS, QUEUES, Claim, ClaimAnswer, Claimed, in_turn
from perdure.kernel.kind import kind_of
from perdure.kernel.quarantine import together
from perdure.kernel.queue import Queue
from perdure.store.sqlite import kind as sqlite_kind
from perdure.store.sqlite import queue as sqlite_queue
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.kind import KindPart
from perdure.store.sqlite.queue import Part

DueRow: TypeAlias = tuple[bytes, int, int]
"""The id of a row that may be taken, its bytes and its deaths alone."""


class DueWork(Struct):
    """What a look found.

    ``heads`` are (hosted pair, priority, earliest due time plain and suspect). ``parts`` are of queues with limits,
    ``kinds`` of kinds with limits. Of all else, the claim may take the ``lapsed`` rows and ``rest`` due ones; ``free``
    are these, if they had to be counted.
    """

    now: int
    alive: bool
    heads: list[tuple[int, int, int | None, int | None]]
    lapsed: list[DueRow]
    alone: bool
    parts: list[Part] = []
    kinds: list[KindPart] = []
    rest: int = 0
    free: list[DueRow] | None = None

    def leave(self, most: int) -> None:
        """Have the claim take at most so many of all else: lapsed rows first, and of suspects one group only."""
        self.lapsed = self.group(self.lapsed[:most])
        self.rest = 0 if self.alone and self.lapsed else most - len(self.lapsed)

    def group(self, rows: list[DueRow]) -> list[DueRow]:
        """These rows; of suspects, those that run next, together."""
        return [rows[place] for place in together([mark for _, _, mark in rows])] if self.alone else rows

    def due(self) -> list[tuple[int, int]]:
        """The (priority, hosted pair) of due rows, in the order in which they are claimed."""
        heads = ((priority, n, suspect if self.alone else plain) for n, priority, plain, suspect in self.heads)
        return sorted((priority, n) for priority, n, at in heads if at is not None and at <= self.now)

    def none(self) -> bool:
        """Whether there is nothing to take."""
        return not self.alive or not (
            self.lapsed
            or self.due()
            or any(part.taken or part.moved for part in self.parts)
            or any(part.taken for part in self.kinds)
        )

    def answer(self, claimed: tuple[Claimed, ...]) -> ClaimAnswer:
        """The answer to a claim that took ``claimed`` and left what is described here."""
        if not self.alive:
            return ClaimAnswer((), self.now, alive=False)
        next_at = [at for _, _, plain, suspect in self.heads if (at := suspect if self.alone else plain) is not None]
        next_at += [self.now for part in self.parts if part.taken]  # what a claim would take now
        next_at += [part.next_at for part in self.parts if part.next_at is not None]
        next_at += [part.next_at for part in self.kinds if part.next_at is not None]
        suspects = any(at is not None and at <= self.now for _, _, _, at in self.heads)
        suspects = suspects or any(part.suspects for part in self.parts)
        waiting = any(part.suspects_waiting for part in self.parts)
        return ClaimAnswer(claimed, self.now, min(next_at, default=None), True, suspects, suspects_waiting=waiting)


def look(connection: Connection, clock: SqliteClock, claim: Claim, at: int | None = None) -> DueWork:
    """See what is due for a worker now, or ``at`` a transaction's time; nothing is changed and no lock taken."""
    queues = sqlite_queue.limited(connection, claim)
    limited = {QUEUE_MARK + queue.name for queue in queues} if queues else ()
    cells: list[Any] = []
    for n, (kind, code) in enumerate(claim.hosted):
        if kind not in limited:
            cells += (n, kind, code)
    now = clock.now() if at is None else at
    alive = False
    named = "[]"
    heads: list[tuple[int, int, int | None, int | None]] = []
    lapsed: list[DueRow] = []
    for found in connection.ask("look_for_work", 3, cells, now, claim.limit, claim.alone, claim.worker):
        now = clock.saw(found[0]) if at is None else at
        alive = bool(found[1])
        heads += json.decode(found[2], type=list[tuple[int, int, int | None, int | None]])
        lapsed += [(bytes.fromhex(id), size, mark) for id, size, mark in json.decode(found[3])]
        named = found[4]
    work = DueWork(now, alive, heads, lapsed, claim.alone)
    kinds = [] if named == "[]" or claim.alone else sqlite_kind.hosted(connection, claim, json.decode(named))
    if kinds:
        work.heads = sqlite_kind.suspects_of(kinds, claim, heads)
    if queues:
        _Sharing(connection, claim, work, queues, kinds).among_queues()
        return work
    work.leave(claim.limit)
    if kinds:
        _Sharing(connection, claim, work, queues, kinds).among_kinds(last=True)
    return work


class _Sharing:
    """One claim, shared out among those that may give it something; ``queues`` and ``kinds`` are rows with limits."""

    def __init__(
        self, connection: Connection, claim: Claim, work: DueWork, queues: Sequence[Queue], kinds: Sequence[Queue]
    ) -> None:
        self.connection = connection
        self.claim = claim
        self.work = work
        self.queues = queues
        self.kinds = kinds
        limited = {QUEUE_MARK + queue.name for queue in queues}
        self.others = {kind for kind, _ in claim.hosted} - limited
        self.unlimited = self.others - {kind_of(row) for row in kinds}

    def among_queues(self) -> None:
        """Ask each queue, and all else, for an equal part of what the claim asks for."""
        left, size = self.claim.limit, 0
        for after, queue in _places(self.queues, self.others, self.work.now, QUEUES):
            part = -(-left // (after + 1))
            if queue is None:
                taken = self._of_all_else(part, last=not after)
            else:
                found = sqlite_queue.look(self.connection, self.claim, queue, part, self.work.now)
                size = found.bound(size, self.work.now)
                self.work.parts.append(found)
                taken = len(found.taken)
            left = 0 if self.claim.alone and taken else left - taken

    def _of_all_else(self, most: int, *, last: bool) -> int:
        """See what all else may give; how many, unless it is the ``last`` to be asked."""
        work = self.work
        work.leave(most)
        if self.kinds:
            self.among_kinds(last=last)
        elif not last:
            work.free = _free(self.connection, self.claim, work)
        return 0 if last else len(work.lapsed) + sum(len(part.taken) for part in work.kinds) + len(work.free or ())

    def among_kinds(self, *, last: bool) -> None:
        """Ask each kind with limits, and all other kinds, for an equal part of the rest of the claim."""
        work = self.work
        left, work.rest, size = work.rest, 0, 0
        for after, row in _places(self.kinds, self.unlimited, work.now, KINDS):
            part = -(-left // (after + 1))
            if row is not None:
                found = sqlite_kind.look(self.connection, self.claim, row, part, work.now, size)
                work.kinds.append(found)
                left, size = left - len(found.taken), found.size
                continue
            work.rest = part
            if after or not last:
                work.free = _free(self.connection, self.claim, work)
                left -= len(work.free)


def _places(rows: Sequence[Queue], others: Set[str], now: int, spread: int) -> Iterator[tuple[int, Queue | None]]:
    """Who is asked, in turn, each with the number of those that are asked after it; None stands for the others."""
    places: list[Queue | None] = [*rows, None] if others else [*rows]
    return ((len(places) - at, place) for at, place in enumerate(in_turn(places, now, spread), 1))


def candidates(connection: Connection, claim: Claim, work: DueWork) -> list[bytes]:
    """The ids to be taken, bounded in rows and bytes: of all else lapsed ones first, then by priority, due time and id.

    Suspects of one group only are taken: of one queue with limits, or lapsed ones, or others.
    """
    placed = [id for part in work.kinds for id in part.taken]
    limited = [task.id for part in work.parts for task in part.taken]
    free = _free(connection, claim, work) if work.free is None else work.free
    return [*placed, *_bounded(work.lapsed + free), *limited]


def _free(connection: Connection, claim: Claim, work: DueWork) -> list[DueRow]:
    """The first ``rest`` rows of all else that are due and free; suspects of one group only."""
    return work.group(_due(connection, claim, work, work.rest, "take_suspects" if work.alone else "take_due"))


def _due(connection: Connection, claim: Claim, work: DueWork, most: int, query: str) -> list[DueRow]:
    """The first rows that are due and free, with their bytes and deaths alone."""
    taken: list[DueRow] = []
    level: list[tuple[int, bytes, int, int]] = []
    due = work.due()
    for at, (priority, n) in enumerate(due):
        left = most - len(taken)
        if left <= 0:
            break
        kind, code = claim.hosted[n]
        (found,) = connection.one(query, kind=kind, code=code, priority=priority, now=work.now, most=left)
        level += [(due_at, bytes.fromhex(id), size, mark) for due_at, id, size, mark in json.decode(found)]
        if at + 1 == len(due) or due[at + 1][0] != priority:
            taken += [(id, size, mark) for _, id, size, mark in sorted(set(level))[:left]]
            level.clear()
    return taken


def _bounded(candidates: Sequence[DueRow]) -> list[bytes]:
    ids: list[bytes] = []
    total = 0
    for id, size, _ in candidates:
        total += size
        if ids and total > limits.BATCH_BYTES:
            break
        ids.append(id)
    return ids
