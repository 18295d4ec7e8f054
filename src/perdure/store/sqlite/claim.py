"""Claims on SQLite: a look without the lock, rows taken under it, what they hold read afterwards (rules 3, 8 to 10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure import limits
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.claim import Claim, ClaimAnswer, Claimed, lacks
from perdure.kernel.event import Event
from perdure.kernel.integrity import unreadable_claim
from perdure.kernel.message import Message
from perdure.kernel.process import Process, Status
from perdure.kernel.quarantine import together
from perdure.kernel.stored import Garbled, Types
from perdure.store.migrate import ahead
from perdure.store.sqlite import inbox as sqlite_inbox
from perdure.store.sqlite import kind as sqlite_kind
from perdure.store.sqlite import queue as sqlite_queue
from perdure.store.sqlite import row as sqlite_row
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.kind import KindPart
from perdure.store.sqlite.queue import Part
from perdure.store.sqlite.writer import Transaction

LAST_TOKEN = (1 << 63) - 1
"""After this number tokens begin again at 1: the row of one process must not fail the claims of all."""
EVENTS_AT_ONCE = 10_000
"""Events that one packed answer holds, unless a single history is longer."""


class DueWork(Struct):
    """What a look found.

    ``heads`` are (hosted pair, priority, earliest due time plain and suspect); ``lapsed`` are rows
    with their bytes and deaths alone. ``parts`` are of queues with limits, ``kinds`` of kinds with limits.
    """

    now: int
    alive: bool
    heads: list[tuple[int, int, int | None, int | None]]
    lapsed: list[tuple[bytes, int, int]]
    alone: bool
    parts: list[Part] = []
    kinds: list[KindPart] = []

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
    lapsed: list[tuple[bytes, int, int]] = []
    for found in connection.ask("look_for_work", 3, cells, now, claim.limit, claim.alone, claim.worker):
        now = clock.saw(found[0]) if at is None else at
        alive = bool(found[1])
        heads += json.decode(found[2], type=list[tuple[int, int, int | None, int | None]])
        lapsed += [(bytes.fromhex(id), size, mark) for id, size, mark in json.decode(found[3])]
        named = found[4]
    parts = sqlite_queue.look(connection, claim, queues, now) if queues else []
    work = DueWork(now, alive, heads, lapsed[: claim.limit], claim.alone, parts)
    if named != "[]" and not claim.alone:
        taken = len(work.lapsed) + sum(len(part.taken) for part in parts)
        work.kinds = sqlite_kind.look(connection, claim, json.decode(named), max(claim.limit - taken, 0), now)
        work.heads = sqlite_kind.suspects_of(work.kinds, claim, heads)
    return work


class TakenRows(Struct):
    """What a claim took: the rows as they are now, their former owners, and what is left for others.

    ``cached`` are the ids of those that the claimant has in memory.
    """

    rows: list[Process]
    owners: list[bytes | None]
    left: DueWork
    cached: Set[bytes] = frozenset()

    @property
    def garbled(self) -> bool:
        """Whether a row holds a text that is not UTF-8."""
        return any(type(text) is Garbled for row in self.rows for text in (row.key, row.awaiting, row.share))


def take(transaction: Transaction, clock: SqliteClock, claim: Claim) -> TakenRows:
    """Take due processes under the write lock; what they hold is read afterwards, without it."""
    connection, now = transaction.connection, transaction.now
    if not (claim.seize or transaction.alive(claim.worker)):
        return TakenRows([], [], DueWork(now, False, [], [], claim.alone))
    if claim.among:
        return _take_among(transaction, claim)
    if claim.only is not None:
        rows = [row for row in _read(connection, [claim.only]) if _may_take(row, claim, now)]
        if any(row.owner is not None for row in rows) and not claim.seize and sqlite_queue.recovery_paused(connection):
            rows = []
        rows = rows if claim.seize else _let(transaction, claim, rows)
    else:
        found = look(connection, clock, claim, now)
        sqlite_queue.settle(connection, found.parts, now)
        sqlite_kind.admit(connection, found.kinds, now)
        rows = _read(connection, _candidates(connection, claim, found))
    rows = sorted(rows[: claim.limit], key=lambda row: row.priority)
    former = {row.id: row.owner for row in rows}
    rows = _owned(transaction, claim, rows) or _placed(transaction, claim, rows)
    owners = [former[row.id] for row in rows]
    left = DueWork(now, True, [], [], claim.alone) if claim.seize else look(connection, clock, claim, now)
    return TakenRows(rows, owners, left, _cached(claim, rows))


def _cached(claim: Claim, rows: Sequence[Process]) -> frozenset[bytes]:
    return frozenset(row.id for row in rows if claim.has(row)) if claim.cached else frozenset()


def _let(transaction: Transaction, claim: Claim, rows: list[Process]) -> list[Process]:
    """Those of the named rows that their queues admit; the queues are charged for them."""
    queues = {QUEUE_MARK + queue.name: queue for queue in sqlite_queue.limited(transaction.connection, claim)}
    let: list[Process] = []
    for row in rows:
        queue = queues.get(row.kind)
        part = sqlite_queue.may_take(transaction.connection, queue, row, transaction.now) if queue else None
        if part is not None:
            sqlite_queue.settle(transaction.connection, [part], transaction.now)
        if queue is None or part is not None:
            let.append(row)
    return let


def _owned(transaction: Transaction, claim: Claim, rows: Sequence[Process]) -> list[Process]:
    """Give rows to the claimant; the answer is the rows as they are then, without those that wait for a place."""
    now = transaction.now
    due_at = now + claim.lease
    if rows:
        ids = [row.id for row in rows]
        common = claim.worker, due_at, now, now, claim.seize
        if transaction.connection.write("own_processes", 1, ids, *common) != len(ids):
            ours = {row.id for row in _read(transaction.connection, ids) if row.owner == claim.worker}
            rows = [row for row in rows if row.id in ours]
    return [
        replace(
            row, token=1 if row.token == LAST_TOKEN else row.token + 1, owner=claim.worker, due_at=due_at,
            reminder=False, opened_at=now if row.opened_at is None else row.opened_at, changed_at=now,
        )
        for row in rows
    ]  # fmt: skip


def _placed(transaction: Transaction, claim: Claim, rows: list[Process]) -> list[Process]:
    """The one row of a claim by its id that waits for a place among the processes of its kind, if there is room."""
    placed = [row for row in rows if claim.only and sqlite_kind.admit_one(transaction.connection, row, transaction.now)]
    return _owned(transaction, claim, _read(transaction.connection, [row.id for row in placed]))


def _take_among(transaction: Transaction, claim: Claim) -> TakenRows:
    """Take those of the named rows that are due and free, and look for no others.

    Tasks of a queue that has a row, and so limits, are left to a claim of all, and so is what waits for a place among
    the processes of its kind: the answer then says that some are due.
    """
    now = transaction.now
    free = [
        row
        for row in _read(transaction.connection, claim.among)
        if row.owner is None and not row.reminder and (row.due_at or 0) <= now and _may_take(row, claim, now)
    ]
    queues = sqlite_queue.limited(transaction.connection, claim) if free else []
    limited = {QUEUE_MARK + queue.name for queue in queues}
    owned = _owned(transaction, claim, [row for row in free if row.kind not in limited][: claim.limit])
    transaction.void = not owned
    heads: list[tuple[int, int, int | None, int | None]] = [(0, 0, now, None)] if len(owned) < len(free) else []
    left = DueWork(now, True, heads, [], False)
    return TakenRows(owned, [None] * len(owned), left, _cached(claim, owned))


def bare(taken: TakenRows) -> tuple[Claimed, ...]:
    """The claimed rows that hold neither events nor messages."""
    return tuple(
        Claimed(row, (), (), owner, unreadable_claim(row, (), ()), cached=row.id in taken.cached)
        for row, owner in zip(taken.rows, taken.owners, strict=True)
    )


def read(connection: Connection, taken: TakenRows) -> ClaimAnswer:
    """Read what the taken processes hold (rule 3): nothing older than the rows, and nothing that came after them."""
    met = Types.met
    packed = _packed_events(connection, taken)
    events = _events(packed, taken.rows)
    unheard = _packed_unheard(connection, taken.rows)
    inboxes = unheard + _packed_received(connection, taken, events)
    packed += inboxes
    messages = _messages(inboxes, taken.rows)
    full = sum(len(body or b"") for _, body in unheard) >= limits.HEARD_BYTES
    backlog = sqlite_inbox.backlogged(connection, taken.rows)
    holes = sqlite_inbox.missing_letters(connection, [row.id for row in taken.rows if row.inbox])
    odd = any(map(sqlite_row.garbled, packed)) or taken.garbled
    answer = taken.left.answer(
        tuple(
            Claimed(
                row, held := tuple(events[row.id]), inbox := tuple(messages[row.id]), owner,
                (unreadable_claim(row, held, inbox) if odd else None) or holes.get(row.id), row.id in backlog,
                row.id in taken.cached, full and lacks(row, inbox),
            )
            for row, owner in zip(taken.rows, taken.owners, strict=True)
        )
    )  # fmt: skip
    if Types.met == met:
        return answer
    # A newer Perdure may have migrated the database since the last beat: then an unknown type is no damage.
    return replace(answer, schema_ahead=ahead("sqlite", connection.one("read_schema")[0]))


def _may_take(row: Process, claim: Claim, now: int) -> bool:
    if claim.seize:
        return row.status is Status.RUNNING
    return (
        row.status is Status.RUNNING
        and (row.owner is None or (row.due_at is not None and row.due_at <= now))
        and (row.deaths >= limits.SUSPECT_DEATHS) is claim.alone
        and (row.kind, row.code) in claim.hosted
    )


def _candidates(connection: Connection, claim: Claim, work: DueWork) -> list[bytes]:
    """The ids to be taken: lapsed ones first, then by priority, due time and id; bounded in rows and in bytes.

    Suspects of one group only are taken: of queues with limits, else lapsed ones, else others.
    """
    limited = [task.id for part in work.parts for task in part.taken]
    limited += [id for part in work.kinds for id in part.taken]
    most = max(claim.limit - len(limited), 0)
    if claim.alone:
        suspects = [] if limited else work.lapsed[:most] or _due(connection, claim, work, most, "take_suspects")
        group = together([mark for _, _, mark in suspects])
        return [*limited, *_bounded([suspects[place] for place in group])]
    taken = work.lapsed[:most]
    return [*limited, *_bounded(taken + _due(connection, claim, work, most - len(taken), "take_due"))]


def _due(connection: Connection, claim: Claim, work: DueWork, most: int, query: str) -> list[tuple[bytes, int, int]]:
    """The first rows that are due and free, with their bytes and deaths alone."""
    taken: list[tuple[bytes, int, int]] = []
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


def _bounded(candidates: Sequence[tuple[bytes, int, int]]) -> list[bytes]:
    ids: list[bytes] = []
    total = 0
    for id, size, _ in candidates:
        total += size
        if ids and total > limits.BATCH_BYTES:
            break
        ids.append(id)
    return ids


def _read(connection: Connection, ids: Sequence[bytes]) -> list[Process]:
    cells: list[Any] = []
    for n, id in enumerate(ids):
        cells += (n, id)
    if not cells:
        return []
    return [row for packed in connection.ask("read_processes", 2, cells) for row in sqlite_row.processes(packed)]


def _packed_events(connection: Connection, taken: TakenRows) -> list[tuple[Any, ...]]:
    packed: list[tuple[Any, ...]] = []
    firsts = [(row, row.events if row.id in taken.cached else 1) for row in taken.rows if row.events]
    for group in _grouped(firsts):
        cells = [cell for row, first in group for cell in (row.id, row.run, first)]
        packed += connection.ask("read_histories", 3, cells)
    return packed


def _events(packed: Sequence[tuple[Any, ...]], rows: Sequence[Process]) -> defaultdict[bytes, list[Event]]:
    events: defaultdict[bytes, list[Event]] = defaultdict(list)
    last = {row.id: row.events for row in rows}
    for part in packed:
        for process, event in sqlite_row.events(part):
            if event.number <= last[process]:
                events[process].append(event)
    return events


def _grouped(rows: Sequence[tuple[Process, int]]) -> Iterator[list[tuple[Process, int]]]:
    """The rows, each with its first event to read, in groups of so many events as one packed answer holds well."""
    group: list[tuple[Process, int]] = []
    count = 0
    for row, first in rows:
        size = row.events - first + 1
        if group and count + size > EVENTS_AT_ONCE:
            yield group
            group, count = [], 0
        group.append((row, first))
        count += size
    if group:
        yield group


def _packed_unheard(connection: Connection, rows: Sequence[Process]) -> list[tuple[Any, ...]]:
    """The messages that the rows have not heard, up to so many bytes in all."""
    cells = [cell for row in rows if row.inbox > row.seen for cell in (row.id, row.seen)]
    return connection.ask("read_unheard", 2, cells, limits.HEARD_BYTES) if cells else []


def _packed_received(
    connection: Connection, taken: TakenRows, events: defaultdict[bytes, list[Event]]
) -> list[tuple[Any, ...]]:
    """The messages that the events refer to."""
    named = [
        (row.id, event.message)
        for row in taken.rows
        if row.inbox and row.id not in taken.cached
        for event in events[row.id]
        if event.message is not None
    ]
    packed: list[tuple[Any, ...]] = []
    for group in sqlite_inbox.weighed(connection, named):
        packed += connection.ask("read_messages_by_number", 2, group)
    return packed


def _messages(packed: Sequence[tuple[Any, ...]], rows: Sequence[Process]) -> defaultdict[bytes, list[Message]]:
    messages: defaultdict[bytes, list[Message]] = defaultdict(list)
    last = {row.id: row.inbox for row in rows}
    found = {(message.process, message.number): message for part in packed for message in sqlite_row.messages(part)}
    for (process, number), message in sorted(found.items()):
        if number <= last[process]:
            messages[process].append(message)
    return messages
