"""Claims of queues with limits on SQLite: due tasks are read by a few seeks per share; the kernel says which may run.

A claim looks first without the write lock. Before it takes tasks it looks again under the lock, so that no two claims
count the running tasks of a queue at once. The limits, like the other small tables, are rows that people name and set,
read and written whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct, json
from msgspec.structs import asdict, replace

from perdure.kernel import queue as rules
from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.claim import Claim
from perdure.kernel.clock import Clock
from perdure.kernel.finding import KeptFinding
from perdure.kernel.process import Process
from perdure.kernel.quarantine import together
from perdure.kernel.queue import SHARES_A_LOOK, SWITCH, Queue, WaitingTask
from perdure.kernel.stream import EventStream
from perdure.limits import BATCH_BYTES
from perdure.store.base import RowT
from perdure.store.sqlite import event_log
from perdure.store.sqlite.clock import SqliteClock
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.text import listed
from perdure.store.sqlite.writer import Transaction


def read(connection: Connection, table: type[RowT], clock: SqliteClock | None = None) -> list[RowT]:
    """All rows of a small table, by name."""
    if clock is not None and issubclass(table, Clock):
        return clock.rows(connection)
    timed = {"now": clock.now()} if clock is not None and issubclass(table, rules.QueueDepth) else {}
    (found,) = connection.one(f"read_{table.__name__.lower()}s", **timed)
    return [table(*fields) for fields in listed(found)]


def write(transaction: Transaction, table: type[RowT], changes: Sequence[RowT], clock: SqliteClock) -> list[RowT]:
    """Write each change whose version is the next one; all rows as they are then."""
    if issubclass(table, Clock):
        return clock.rows(transaction.connection, changes)
    if issubclass(table, EventStream):
        event_log.write(transaction, cast(Sequence[EventStream], changes))
        return read(transaction.connection, table)
    for change in changes:
        verb = "remove" if isinstance(change, KeptFinding) and change.removed else "write"
        if transaction.connection.run(f"{verb}_{table.__name__.lower()}", **asdict(change)) > 0 and table is Queue:
            transaction.left_due = True  # what waited in a queue may be due for others now
    return read(transaction.connection, table)


LAST = "\U0010ffff" * 256
"""Sorts after every share."""


class Part(Struct):
    """What a claim may take of one queue with limits, lapsed tasks first; ``next_at`` is when to look again.

    ``ended`` is the last share that was seen, if not all were; ``seen_to`` the same if the last share was not reached.
    ``suspects_waiting`` says that suspects are due without room for them, ``suspects`` that there may be room.
    """

    queue: Queue
    taken: list[WaitingTask]
    next_at: int | None = None
    suspects: bool = False
    suspects_waiting: bool = False
    ended: str | None = None
    seen_to: str | None = None
    lapsed: int = 0

    @property
    def moved(self) -> bool:
        """Whether the next look begins after another share than this one, even if there is nothing to take."""
        return self.ended is not None and self.ended != self.queue.turn

    def bound(self, size: int, now: int) -> int:
        """Leave what would make an answer of ``size`` bytes larger than one may be; the answer is its size then."""
        for n, task in enumerate(self.taken):
            if size and size + task.bytes > BATCH_BYTES:
                self.taken, self.next_at = self.taken[:n], now
                break
            size += task.bytes
        return size

    def turned(self) -> Queue:
        """The row with the share that had the last turn, if a task begins; lapsed tasks only keep their place."""
        begun = self.taken[self.lapsed :]
        if begun:
            return self.queue.turned(begun[-1].share, self.seen_to)
        return self.queue if self.ended is None else replace(self.queue, turn=self.ended)


class QueueLevel(Struct, array_like=True):
    """One code and priority of a queue: the earliest due times of plain tasks, of suspects, and of tasks due later."""

    code: str
    priority: int
    plain: int | None
    suspect: int | None
    later: int | None


def limited(connection: Connection, claim: Claim) -> list[Queue]:
    """The rows of a claim's queues, by name; a queue without limits may have none."""
    kinds = {kind for kind, _ in claim.hosted if is_task(kind)}
    if not kinds:
        return []
    return [queue for queue in read(connection, Queue) if QUEUE_MARK + queue.name in kinds]


def recovery_paused(connection: Connection) -> bool:
    """Whether a person has paused automatic recovery, or has set its budget, which sweeps spend and claims do not."""
    return any(
        row.name == SWITCH and (row.blocked_at is not None or row.rate is not None) for row in read(connection, Queue)
    )


def freed(connection: Connection, kinds: set[str]) -> tuple[str, ...]:
    """Of these kinds, whose tasks have ended: those whose queue may have been full and has room now."""
    return tuple(
        QUEUE_MARK + queue.name
        for queue in read(connection, Queue)
        if QUEUE_MARK + queue.name in kinds
        and queue.blocked_at is None
        and (queue.concurrency is not None or queue.share_concurrency is not None)
    )


def look(connection: Connection, claim: Claim, queue: Queue, most: int, now: int) -> Part:
    """What a claim may take of a queue, at most ``most`` tasks."""
    return _Look(connection, claim, queue, now).part(most)


def settle(connection: Connection, parts: Sequence[Part], now: int) -> None:
    """Write down what the queues were charged for, and where the next look begins."""
    for part in parts:
        after = part.turned().paid(sum(task.weight for task in part.taken), now)
        if part.taken or part.moved:
            connection.run("keep_queue", name=after.name, next_at=after.next_at, turn=after.turn)


def may_take(connection: Connection, queue: Queue, row: Process, now: int) -> Part | None:
    """One named task, if its queue lets it be taken: a lapsed one keeps its place, a free one needs room."""
    if queue.blocked_at is not None:
        return None
    weight = queue.weight(row.cost)
    task = WaitingTask(row.id, row.priority, row.share, weight, row.due_at or now)
    if row.owner is None:
        running = _running(connection, queue)
        room = rules.least(queue.slots(running), queue.pace(now))
        if not rules.choice(queue, [task], running, 1, room).taken:
            return None
    return Part(queue, [task], lapsed=1)


def _running(connection: Connection, queue: Queue) -> dict[str | None, int]:
    (found,) = connection.one("running_of_queue", kind=QUEUE_MARK + queue.name)
    return rules.weights(queue, listed(found))


class _Look:
    """One look at one queue; ``queue`` is its row as it will be after the claim, except for the charge."""

    def __init__(self, connection: Connection, claim: Claim, queue: Queue, now: int) -> None:
        self.connection = connection
        self.queue = queue
        self.now = now
        self.alone = claim.alone
        self.kind = QUEUE_MARK + queue.name
        self.codes = [code for kind, code in claim.hosted if kind == self.kind]
        self.ended: str | None = None
        self.seen_to: str | None = None

    def part(self, most: int) -> Part:
        """What may be taken now, at most ``most`` tasks, and when to look again."""
        queue, now = self.queue, self.now
        if queue.blocked_at is not None:
            return Part(queue, [])
        lapsed = self._tasks("lapsed_of_queue", alone=self.alone, codes=json.encode(self.codes).decode(), most=most)
        if self.alone and lapsed:
            lapsed, most = _group(lapsed), 0
        charged = queue.paid(sum(task.weight for task in lapsed), now)
        running = _running(self.connection, queue)
        slots, pace, most = queue.slots(running), charged.pace(now), max(most - len(lapsed), 0)
        room = rules.least(slots, pace)
        if room is not None and room <= 0:
            found = rules.Choice(refused=1)
        else:
            found = rules.choice(queue, self._waiting(most, room) if most else [], running, most, room)
        part = Part(queue, [*lapsed, *found.taken], ended=self.ended, seen_to=self.seen_to, lapsed=len(lapsed))
        paid = sum(task.weight for task in found.taken)
        if slots is not None and slots - paid < (found.refused or 1):
            codes = json.encode(self.codes).decode()
            (part.suspects_waiting,) = self.connection.one("suspects_in_queue", kind=self.kind, codes=codes, now=now)
            return part  # the queue is full: the end of a task notifies the workers
        heads = self._levels()
        part.suspects = any(level.suspect is not None and level.suspect <= now for level in heads)
        if found.more or self.ended or not most:
            part.next_at = now
            return part
        later = [level.suspect if self.alone else level.later for level in heads]
        times = [at for at in later if at is not None and at > now]
        if found.refused is not None and (at := charged.paid(paid, now).payable_at(found.refused)) is not None:
            times.append(at)
        part.next_at = min(times, default=None)
        return part

    def _levels(self) -> list[QueueLevel]:
        codes = json.encode(self.codes).decode()
        (found,) = self.connection.one("heads_of_queue", kind=self.kind, codes=codes, now=self.now)
        return json.decode(found, type=list[QueueLevel])

    def _waiting(self, most: int, room: int | None) -> list[WaitingTask]:
        """The first due tasks of each code, priority and share."""
        waiting: list[WaitingTask] = []
        for level in sorted(self._levels(), key=lambda level: (level.priority, level.code.encode())):
            at = level.suspect if self.alone else level.plain
            if at is None or at > self.now:
                continue
            where: dict[str, Any] = {"code": level.code, "priority": level.priority}
            if self.alone:
                waiting += self._tasks("suspects_of_queue", most=rules.reach(most, room, 1), **where)
                continue
            shares = self._shares(level)
            each = rules.reach(most, room, len(shares))
            for share in shares:
                waiting += self._tasks("tasks_of_share", share=share, most=each, **where)
        return _group(waiting) if self.alone else waiting

    def _shares(self, level: QueueLevel) -> list[str | None]:
        """The shares after the one that had the last turn, then those before it, then None: no share."""
        where = {"kind": self.kind, "code": level.code, "priority": level.priority, "most": SHARES_A_LOOK + 1}
        turn = self.queue.turn
        (found,) = self.connection.one("shares_of_queue", after=turn, last=LAST, **where)
        shares: list[str | None] = listed(found)
        if len(shares) > SHARES_A_LOOK:
            self.seen_to = self.seen_to or shares[SHARES_A_LOOK - 1]
        elif turn:
            (found,) = self.connection.one("shares_of_queue", after="", last=turn, **where)
            shares += listed(found)
        if len(shares) > SHARES_A_LOOK:
            shares = shares[:SHARES_A_LOOK]
            self.ended = self.ended or shares[-1]
        return [*shares, None]

    def _tasks(self, query: str, *, most: int, priority: int = 0, **given: Any) -> list[WaitingTask]:
        if most <= 0:
            return []
        asked = {"kind": self.kind, "now": self.now, "most": most, "priority": priority} | given
        (found,) = self.connection.one(query, **asked)
        rows = listed(found)
        return [
            WaitingTask(bytes.fromhex(id), priority, share, self.queue.weight(cost), due_at, n == most, size, mark)
            for n, (due_at, id, share, cost, size, mark) in enumerate(rows, 1)
        ]


def _group(suspects: Sequence[WaitingTask]) -> list[WaitingTask]:
    """The suspects that run next, together."""
    order = sorted(suspects, key=lambda task: (task.priority, task.due_at, task.id))
    return [order[place] for place in together([task.mark for task in order])]
