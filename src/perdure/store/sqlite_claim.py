"""Claims on SQLite: a look without the lock, then rows taken under it, then what they hold (rules 3, 8, 9 and 10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.kernel.event import Event
from perdure.kernel.lease import Claim, ClaimAnswer, Claimed
from perdure.kernel.message import Message
from perdure.kernel.process import Process, Status
from perdure.limits import SUSPECT_DEATHS
from perdure.store import sqlite_row
from perdure.store.sqlite_clock import SqliteClock
from perdure.store.sqlite_connection import Connection
from perdure.store.sqlite_writer import Transaction


class Work(Struct):
    """What a look found: the heads (hosted pair, priority, earliest due time plain and suspect) and lapsed rows."""

    now: int
    alive: bool
    heads: list[tuple[int, int, int | None, int | None]]
    lapsed: list[bytes]
    alone: bool

    def due(self) -> list[tuple[int, int]]:
        """The (priority, hosted pair) of which rows are due, in the order in which they are to be taken."""
        heads = ((priority, n, suspect if self.alone else plain) for n, priority, plain, suspect in self.heads)
        return sorted((priority, n) for priority, n, at in heads if at is not None and at <= self.now)

    def none(self) -> bool:
        """Whether there is nothing to take."""
        return not self.alive or not (self.lapsed or self.due())

    def answer(self, claimed: tuple[Claimed, ...]) -> ClaimAnswer:
        """The answer to a claim that took this, when it leaves what is described here."""
        if not self.alive:
            return ClaimAnswer((), self.now, alive=False)
        next_at = [at for _, _, plain, suspect in self.heads if (at := suspect if self.alone else plain) is not None]
        suspects = any(at is not None and at <= self.now for _, _, _, at in self.heads)
        return ClaimAnswer(claimed, self.now, min(next_at, default=None), True, suspects)


def look(connection: Connection, clock: SqliteClock, claim: Claim) -> Work:
    """See what is due for a worker; nothing is changed and no lock taken."""
    cells: list[Any] = []
    for n, (kind, code) in enumerate(claim.hosted):
        cells += (n, kind, code)
    now = clock.now()
    alive = False
    heads: list[tuple[int, int, int | None, int | None]] = []
    lapsed: list[bytes] = []
    for found in connection.ask("look_for_work", 3, cells, now, claim.limit, claim.alone, claim.worker):
        now = clock.saw(found[0])
        alive = bool(found[1])
        heads += json.decode(found[2], type=list[tuple[int, int, int | None, int | None]])
        lapsed += [bytes.fromhex(id) for id in json.decode(found[3])]
    return Work(now, alive, heads, lapsed[: claim.limit], claim.alone)


def claim(transaction: Transaction, clock: SqliteClock, claim: Claim) -> ClaimAnswer:
    """Take due processes under the write lock, and read what they hold."""
    connection, now = transaction.connection, transaction.now
    if not transaction.alive(claim.worker):
        return ClaimAnswer((), now, alive=False)
    if claim.only is not None:
        rows = [row for row in _read(connection, [claim.only]) if _may_take(row, claim, now)]
    else:
        found = look(connection, clock, claim)
        found.now = now
        rows = _read(connection, _candidates(connection, claim, found))
    rows = rows[: claim.limit]
    if not rows:
        return look(connection, clock, claim).answer(())
    due_at = now + claim.lease
    connection.write("own_processes", 1, [row.id for row in rows], claim.worker, due_at, now, now)
    owned = [
        replace(
            row, token=row.token + 1, owner=claim.worker, due_at=due_at, reminder=False,
            opened_at=now if row.opened_at is None else row.opened_at, changed_at=now,
        )
        for row in rows
    ]  # fmt: skip
    events = _events(connection, owned)
    messages = _messages(connection, owned, events)
    claimed = tuple(
        Claimed(row, tuple(events[row.id]), tuple(messages[row.id]), before.owner)
        for row, before in sorted(zip(owned, rows, strict=True), key=lambda pair: pair[0].priority)
    )
    return look(connection, clock, claim).answer(claimed)


def _may_take(row: Process, claim: Claim, now: int) -> bool:
    return (
        row.status is Status.RUNNING
        and (row.owner is None or (row.due_at is not None and row.due_at <= now))
        and (row.deaths >= SUSPECT_DEATHS) is claim.alone
        and (row.kind, row.code) in claim.hosted
    )


def _candidates(connection: Connection, claim: Claim, work: Work) -> list[bytes]:
    """The ids to be taken: lapsed ones first, then by priority, due time and id."""
    taken = list(work.lapsed)
    query = "take_suspects" if claim.alone else "take_due"
    level: list[tuple[int, bytes]] = []
    due = work.due()
    for at, (priority, n) in enumerate(due):
        left = claim.limit - len(taken)
        if left <= 0:
            break
        kind, code = claim.hosted[n]
        (found,) = connection.one(query, kind=kind, code=code, priority=priority, now=work.now, most=left)
        level += [(due_at, bytes.fromhex(id)) for due_at, id in json.decode(found)]
        if at + 1 == len(due) or due[at + 1][0] != priority:
            taken += [id for _, id in sorted(set(level))[:left]]
            level.clear()
    return taken


def _read(connection: Connection, ids: Sequence[bytes]) -> list[Process]:
    cells: list[Any] = []
    for n, id in enumerate(ids):
        cells += (n, id)
    if not cells:
        return []
    return [row for packed in connection.ask("read_processes", 2, cells) for row in sqlite_row.processes(packed)]


def _events(connection: Connection, rows: Sequence[Process]) -> defaultdict[bytes, list[Event]]:
    cells: list[Any] = []
    for row in rows:
        if row.events:
            cells += (row.id, row.run)
    events: defaultdict[bytes, list[Event]] = defaultdict(list)
    if cells:
        for packed in connection.ask("read_histories", 2, cells):
            for process, event in sqlite_row.events(packed):
                events[process].append(event)
    return events


def _messages(
    connection: Connection, rows: Sequence[Process], events: defaultdict[bytes, list[Event]]
) -> defaultdict[bytes, list[Message]]:
    """What was not consumed, and what the events refer to."""
    unheard: list[Any] = [row.id for row in rows if row.inbox]
    messages: defaultdict[bytes, list[Message]] = defaultdict(list)
    if not unheard:
        return messages
    named: list[Any] = []
    for process in unheard:
        for event in events[process]:
            if event.message is not None:
                named += (process, event.message)
    packed = connection.ask("read_unheard", 1, unheard)
    if named:
        packed += connection.ask("read_messages_by_number", 2, named)
    found = {(message.process, message.number): message for part in packed for message in sqlite_row.messages(part)}
    for _, message in sorted(found.items()):
        messages[message.process].append(message)
    return messages
