"""Claims on SQLite: what is due is taken under the lock; what it holds is read afterwards (rules 3, 8 to 10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.claim import Claim, ClaimAnswer, Claimed, lacks
from perdure.kernel.event import Event
from perdure.kernel.integrity import unreadable_claim
from perdure.kernel.message import Message
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import Garbled, Types
from perdure.store.migrate import ahead
from perdure.store.sqlite import inbox as sqlite_inbox
from perdure.store.sqlite import kind as sqlite_kind
from perdure.store.sqlite import queue as sqlite_queue
from perdure.store.sqlite import row as sqlite_row
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.due_work import DueWork, candidates, look
from perdure.store.sqlite.writer import Transaction

LAST_TOKEN = (1 << 63) - 1
"""After this number tokens begin again at 1: the row of one process must not fail the claims of all."""
EVENTS_AT_ONCE = 10_000
"""Events that one packed answer holds, unless a single history is longer."""


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
        rows = _read(connection, candidates(connection, claim, found))
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
        common = claim.worker, due_at, now, now
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
    """Take those of the named rows that are due and free, or as the claimant knows them, and look for no others.

    Tasks of a queue that has a row, and so limits, are left to a claim of all, and so is what waits for a place among
    the processes of its kind, and what one answer does not hold: the answer then says that some are due.
    """
    connection, now = transaction.connection, transaction.now
    cells = [cell for pair in enumerate(claim.among) for cell in pair]
    packed = connection.ask("read_free", 2, cells, now, limits.BATCH_BYTES, claim.resting)
    read = [row for part in packed for row in sqlite_row.processes(part[:2])]
    cut = sum(number for *_, number in packed) - len(read)
    free = [row for row in read if _may_take(row, claim, now)]
    if claim.resting:
        free = [row for row in free if claim.cached.get(row.id) == (row.token, row.version)]
    queues = sqlite_queue.limited(connection, claim) if free else []
    limited = {QUEUE_MARK + queue.name for queue in queues}
    owned = _owned(transaction, claim, [row for row in free if row.kind not in limited][: claim.limit])
    transaction.void = not owned
    more = len(owned) < len(free) + cut and not claim.resting
    heads: list[tuple[int, int, int | None, int | None]] = [(0, 0, now, None)] if more else []
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
        return row.status is Status.RUNNING and row.owner is not None
    return (
        row.status is Status.RUNNING
        and (row.owner is None or (row.due_at is not None and row.due_at <= now))
        and (row.deaths >= limits.SUSPECT_DEATHS) is claim.alone
        and (row.kind, row.code) in claim.hosted
    )


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
