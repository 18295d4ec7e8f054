"""Claims of kinds with limits on SQLite: what has a place goes on, and what waits for one gets it if there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, json

from perdure.kernel import kind as rules
from perdure.kernel.claim import Claim
from perdure.kernel.kind import KIND_MARK
from perdure.kernel.process import Process
from perdure.kernel.queue import Queue, least
from perdure.limits import BATCH_BYTES
from perdure.store.base import RowT
from perdure.store.sqlite import queue as sqlite_queue
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.queue import QueueLevel
from perdure.store.sqlite.text import listed
from perdure.store.sqlite.writer import Transaction

_Head: TypeAlias = tuple[int, int, int | None, int | None]


class KindPart(Struct):
    """What a claim may take of one kind with limits: those ``admitted`` get a place. ``next_at`` is the next look.

    ``size`` is the number of bytes that an answer has which holds them, and what was taken before.
    """

    row: Queue
    taken: list[bytes]
    admitted: list[bytes]
    next_at: int | None = None
    size: int = 0


def limited_kinds(connection: Connection) -> dict[str, Queue]:
    """The rows of all kinds with limits, by kind."""
    rows = sqlite_queue.read(connection, Queue)
    return {kind: row for row in rows if (kind := rules.kind_of(row)) is not None and rules.is_limited(row)}


def hosted(connection: Connection, claim: Claim, names: Sequence[str]) -> list[Queue]:
    """Of the rows with these names, those whose kinds a claim hosts."""
    wanted = {KIND_MARK + kind for kind, _ in claim.hosted}.intersection(names)
    return [row for row in sqlite_queue.read(connection, Queue) if row.name in wanted] if wanted else []


def look(connection: Connection, claim: Claim, row: Queue, most: int, now: int, size: int) -> KindPart:
    """What a claim may take of the kind with this row, at most ``most`` processes, for an answer of ``size`` bytes."""
    return _Look(connection, claim, row, now).part(most, size)


def admit(connection: Connection, parts: Sequence[KindPart], now: int) -> None:
    """Give their places to those that a claim is going to take, and keep what the rates count."""
    for part in parts:
        if part.admitted:
            connection.write("give_places", 1, list(part.admitted))
            after = rules.admitted(part.row, len(part.admitted), now)
            connection.run("keep_queue", name=after.name, next_at=after.next_at, turn=after.turn)


def write(transaction: Transaction, table: type[RowT], changes: Sequence[RowT], clock: SqliteClock) -> list[RowT]:
    """Write rows of a small table. Where a kind gets its first limits, what has begun of it has its place already."""
    if table is not Queue:
        return sqlite_queue.write(transaction, table, changes, clock)
    before = limited_kinds(transaction.connection)
    rows = sqlite_queue.write(transaction, table, changes, clock)
    for kind in limited_kinds(transaction.connection).keys() - before.keys():
        transaction.connection.run("mark_begun", kind=kind)
    return rows


def admit_one(connection: Connection, process: Process, now: int) -> bool:
    """Give a place to a process that is claimed by its id, if there is room."""
    row = limited_kinds(connection)[process.kind]
    (running,) = connection.one("places_of_kind", kind=process.kind)
    if least(rules.places(row, running), rules.pace(row, now), 1) != 1:
        return False
    admit(connection, [KindPart(row, [], [process.id])], now)
    return True


def suspects_of(rows: Sequence[Queue], claim: Claim, heads: Sequence[_Head]) -> list[_Head]:
    """The earliest due times without those that kinds with limits tell: of these only suspects are left."""
    kinds = {rules.kind_of(row) for row in rows}
    return [
        (n, priority, None if claim.hosted[n][0] in kinds else plain, suspect) for n, priority, plain, suspect in heads
    ]


class _Look:
    """One look at one kind, without a change."""

    def __init__(self, connection: Connection, claim: Claim, row: Queue, now: int) -> None:
        self.connection = connection
        self.row = row
        self.now = now
        self.kind = row.name.removeprefix(KIND_MARK)
        self.codes = [code for kind, code in claim.hosted if kind == self.kind]

    def part(self, most: int, size: int) -> KindPart:
        """Those that have a place and are due, then as many of those that wait as there is room for."""
        asked = {"kind": self.kind, "codes": json.encode(self.codes).decode(), "now": self.now}
        (found,) = self.connection.one("due_with_place", **asked, most=most)
        due = [(bytes.fromhex(id), length) for _, _, id, length in listed(found)]
        settled, size = _bounded(due, size)
        levels = self._levels(asked)
        (running,) = self.connection.one("places_of_kind", kind=self.kind)
        room = least(rules.places(self.row, running), rules.pace(self.row, self.now))
        left = least(most - len(settled), room) or 0
        waiting = self._waiting(levels, left + 1)
        fresh, size = _bounded(waiting[:left], size)
        times = [level.later for level in levels if level.later is not None]
        if due or waiting[:left] or not most:
            times = [self.now]  # this is for the claim after those that are taken now
        elif waiting:
            times.append(rules.look_at(self.row, running, self.now))
        return KindPart(self.row, [*settled, *fresh], fresh, min(times, default=None), size)

    def _levels(self, asked: dict[str, object]) -> list[QueueLevel]:
        (found,) = self.connection.one("heads_of_queue", **asked)
        levels = json.decode(found, type=list[QueueLevel])
        return sorted(levels, key=lambda level: (level.priority, level.code.encode()))

    def _waiting(self, levels: Sequence[QueueLevel], most: int) -> list[tuple[bytes, int]]:
        """The first that wait for a place, by priority and then by the time from which they wait."""
        waiting: list[tuple[int, int, bytes, int]] = []
        for level in levels:
            if level.plain is None or level.plain > self.now or sum(one[0] < level.priority for one in waiting) >= most:
                continue
            where = {"kind": self.kind, "code": level.code, "priority": level.priority, "now": self.now, "most": most}
            (found,) = self.connection.one("due_without_place", **where)
            waiting += ((*one[:2], bytes.fromhex(one[2]), one[3]) for one in listed(found))
        return [(id, size) for _, _, id, size in sorted(waiting)[:most]]


def _bounded(rows: Sequence[tuple[bytes, int]], size: int) -> tuple[list[bytes], int]:
    """The first of these rows that an answer of ``size`` bytes can hold too, and its size then; one at least in all."""
    ids: list[bytes] = []
    for id, more in rows:
        if size and size + more > BATCH_BYTES:
            break
        ids.append(id)
        size += more
    return ids, size
