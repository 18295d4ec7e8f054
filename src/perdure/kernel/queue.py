"""A queue with limits: how much of it may run at once, how fast its tasks begin, and whether anything of it begins.

Only queues that somebody has limited or blocked have a row. What a claim may take of such a queue is decided here, on
what a store has read under the lock of that row; PostgreSQL does the same in SQL, and the conformance suite compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.process import Process

SWITCH = " recovery"
"""The row that is no queue's, for no name begins with a space: while it is blocked, automatic recovery is paused."""
SHARES_A_LOOK = 50
"""So many shares take part in one look; where there are more, the next look begins behind them."""


class Queue(Struct, frozen=True, gc=False):
    """One row of the table ``queue``. Times and durations are microseconds by the store's clock.

    ``concurrency`` is the sum of the costs that run at most, over all workers; ``share_concurrency`` the same for each
    share (the fairness key of a task). ``rate`` is the sum of the costs that begin in ``per`` microseconds. None is no
    limit; a cost above a limit counts as the whole of it. ``blocked_at`` says since when nothing begins. ``who``,
    ``why`` and ``origin`` are of the last change. ``next_at`` and ``turn`` are kept by the store: the time at which all
    that has begun is paid for by the rate, and the share whose turn it was last (or that ended a look in vain which did
    not see them all); what has no share comes behind the last share, and leaves it empty.
    """

    name: str
    version: int = 1
    concurrency: int | None = None
    rate: int | None = None
    per: int = 1_000_000
    share_concurrency: int | None = None
    blocked_at: int | None = None
    blocked_by: str = ""
    blocked_why: str = ""
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""
    next_at: int = 0
    turn: str = ""

    def weight(self, cost: int) -> int:
        """What a task of that cost takes of the limits."""
        limits = (self.concurrency, self.share_concurrency, self.rate)
        return min([cost, *(limit for limit in limits if limit is not None)])

    def slots(self, running: Mapping[str | None, int]) -> int | None:
        """How much more may run at once, where so much of each share runs; None if there is no limit."""
        return None if self.concurrency is None else self.concurrency - sum(running.values())

    def rank(self, share: str | None) -> tuple[int, bytes]:
        """The place of a share among those that take turns: behind the one whose turn it was last, and round again."""
        if share is None:
            return (1, b"") if self.turn else (2, b"")
        name = share.encode()
        return (0 if name > self.turn.encode() else 2, name)

    def pace(self, now: int) -> int | None:
        """How much may begin now; None if there is no limit."""
        if self.rate is None:
            return None
        return max(self.per - max(self.next_at - now, 0), 0) * self.rate // self.per

    def paid(self, weight: int, now: int) -> Queue:
        """The row after so much has begun."""
        if self.rate is None or not weight:
            return self
        return replace(self, next_at=max(self.next_at, now) + -(-weight * self.per // self.rate))

    def payable_at(self, weight: int) -> int | None:
        """When so much may begin by the rate."""
        return None if self.rate is None else self.next_at - self.per + -(-weight * self.per // self.rate)


def changed(old: Queue | None, new: Queue) -> Queue:
    """The row after a change: what the store keeps in it stays, but no debt is longer than one period of the rate."""
    if old is None:
        return replace(new, next_at=0, turn="")
    return replace(new, next_at=min(old.next_at, new.changed_at + new.per), turn=old.turn)


class WaitingTask(Struct, frozen=True, gc=False):
    """A due task of a limited queue. ``last`` says that no more of its share was read; ``bytes`` are its payloads'.

    ``mark`` is the ``alone_deaths`` of a suspect.
    """

    id: bytes
    priority: int
    share: str | None
    weight: int
    due_at: int
    last: bool = False
    bytes: int = 0
    mark: int = 0


class Choice(Struct, frozen=True):
    """The tasks to take in order; ``refused`` is the weight of the first one for which there is no room.

    ``more`` says that the look ended before the tasks did.
    """

    taken: tuple[WaitingTask, ...] = ()
    refused: int | None = None
    more: bool = False


def least(*limits: int | None) -> int | None:
    """The smallest of some limits; None if there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def reach(most: int, room: int | None, shares: int) -> int:
    """How many tasks of each share are read, of which so many take part: together twice what could be taken."""
    wanted = most if room is None else min(most, room)
    return min(wanted, -(-2 * wanted // shares))


def weights(queue: Queue, running: Iterable[tuple[str | None, int, int]]) -> dict[str | None, int]:
    """How much runs of each share, from (share, cost, number of tasks)."""
    sums: dict[str | None, int] = {}
    for share, cost, number in running:
        sums[share] = sums.get(share, 0) + number * queue.weight(cost)
    return sums


def choice(
    queue: Queue, waiting: Sequence[WaitingTask], running: Mapping[str | None, int], most: int, room: int | None
) -> Choice:
    """What to take of due tasks: by priority; of one priority the shares take turns, as far as there is room.

    The turn is of the share of which least runs, then of the next one behind the share whose turn it was last. Of one
    share it is of the longest due, then of who was asked for first. Nothing passes by a task for which there is no
    room, so that one that costs much is not put off for ever; a share that has reached its own limit is passed by.
    """
    sums = dict(running)
    turns: list[tuple[int, int, tuple[int, bytes], int, bytes, WaitingTask]] = []
    for task in sorted(waiting, key=lambda task: (task.priority, task.due_at, task.id)):
        before = sums.get(task.share, 0)
        sums[task.share] = reached = before + task.weight
        if queue.share_concurrency is None or reached <= queue.share_concurrency:
            turns.append((task.priority, before, queue.rank(task.share), task.due_at, task.id, task))
    tasks = [turn[-1] for turn in sorted(turns, key=lambda turn: turn[:-1])]
    together = list(accumulate(task.weight for task in tasks))
    fitting = [task for task, sum in zip(tasks, together, strict=True) if room is None or sum <= room]
    refused = tasks[len(fitting)].weight if len(fitting) < len(tasks) else None
    more = len(fitting) > most or any(task.last for task in fitting)
    return Choice(tuple(fitting[:most]), refused, more)


class Load(Struct, frozen=True, gc=False):
    """How many tasks of one queue, share and cost are in somebody's hands; nobody writes it, it is counted."""

    name: str
    share: str | None
    cost: int
    tasks: int


class QueueLoads(Struct, frozen=True):
    """What must be known of the queues with limits to say why a task of theirs does not begin."""

    queues: tuple[Queue, ...] = ()
    loads: tuple[Load, ...] = ()

    def of(self, process: Process, now: int) -> tuple[str, str] | None:
        """Who moves a due task that its queue keeps, and why it waits, for people; None if the queue does not."""
        queue = next((queue for queue in self.queues if QUEUE_MARK + queue.name == process.kind), None)
        if queue is None:
            return None
        if queue.blocked_at is not None:
            why = f": {queue.blocked_why}" if queue.blocked_why else ""
            return "person", f"queue {queue.name} is blocked by {queue.blocked_by or 'somebody'}{why}"
        mine = [(load.share, load.cost, load.tasks) for load in self.loads if load.name == queue.name]
        text = _kept(queue, process, weights(queue, mine), now)
        return None if text is None else ("worker", f"queue {queue.name} {text}")


def _kept(queue: Queue, process: Process, running: Mapping[str | None, int], now: int) -> str | None:
    slots, weight, busy = queue.slots(running), queue.weight(process.cost), running.get(process.share, 0)
    if slots is not None and slots < weight:
        return f"is full ({sum(running.values())} of {queue.concurrency})"
    if queue.share_concurrency is not None and busy + weight > queue.share_concurrency:
        whose = "tasks without a share" if process.share is None else f"share {process.share}"
        return f"is full for {whose} ({busy} of {queue.share_concurrency})"
    pace = queue.pace(now)
    if pace is not None and pace < weight:
        return f"is at its rate ({queue.rate} in {queue.per / 1_000_000:g} s)"
    return None
