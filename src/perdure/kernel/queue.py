"""A queue with limits: how much of it may run at once, how fast its tasks begin, and whether anything of it begins.

Only queues that a person has limited or blocked have a row. This module decides what a claim may take of such a queue,
from what a store has read under the lock of that row; PostgreSQL does the same in SQL, and the conformance suite
compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from perdure.kernel.breaker import BREAKER_MARK, Circuit
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.outage import OutageState
from perdure.kernel.process import Process

SWITCH = " recovery"
"""The row of no queue, since no name begins with a space: while it is blocked, automatic recovery is paused."""
SHARES_A_LOOK = 50
"""At most so many shares take part in one claim; if there are more, the next claim begins behind them."""


class Queue(Struct, frozen=True, gc=False):
    """One row of the table ``queue``. Times and durations are microseconds by the store's clock.

    ``concurrency`` limits the sum of the costs that run at once, over all workers; ``share_concurrency`` does the same
    for each share (the fairness key of a task). ``rate`` limits the sum of the costs that begin in ``per``
    microseconds. None is no limit; a cost above a limit counts as the whole limit. ``blocked_at`` says since when
    nothing begins. ``who``, ``why`` and ``origin`` describe the last change.

    The store keeps ``next_at``, the time at which the rate has paid for everything that has begun, and ``turn``, the
    share whose turn it was last (or the last share of a claim that took nothing and did not see all shares). Tasks
    without a share come behind the last share, and leave ``turn`` empty if the claim saw the shares up to the last one.
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
        """How much more may run at once beside ``running``, the weight of each share; None if there is no limit."""
        return None if self.concurrency is None else self.concurrency - sum(running.values())

    def rank(self, share: str | None) -> tuple[int, bytes]:
        """The place of a share among those that take turns: behind the one whose turn it was last, and round again."""
        if share is None:
            return (1, b"") if self.turn else (2, b"")
        name = share.encode()
        return (0 if name > self.turn.encode() else 2, name)

    def turned(self, share: str | None, seen_to: str | None) -> Queue:
        """The row after a claim whose last task is of that ``share``, from which the next claim goes on.

        ``seen_to`` is the last share that the claim has seen, if more come behind it; None if it saw the last one.
        Where the turn would go back to the first share before these were seen, the next claim goes on behind it.
        """
        if seen_to is not None and self.rank(share)[0] > 0:
            return replace(self, turn=seen_to)
        return replace(self, turn=share or "")

    def pace(self, now: int) -> int | None:
        """How much may begin now; None if there is no limit."""
        if self.rate is None:
            return None
        return max(self.per - max(self.next_at - now, 0), 0) * self.rate // self.per

    def paid(self, weight: int, now: int) -> Queue:
        """The row after tasks of that weight have begun."""
        if self.rate is None or not weight:
            return self
        return replace(self, next_at=max(self.next_at, now) + -(-weight * self.per // self.rate))

    def payable_at(self, weight: int) -> int | None:
        """The time from which the rate lets tasks of that weight begin."""
        return None if self.rate is None else self.next_at - self.per + -(-weight * self.per // self.rate)


def changed(old: Queue | None, new: Queue) -> Queue:
    """The row after a change: the store's own columns stay, but no debt is longer than one period of the rate."""
    if old is None:
        return replace(new, next_at=0, turn="")
    return replace(new, next_at=min(old.next_at, new.changed_at + new.per), turn=old.turn)


class WaitingTask(Struct, frozen=True, gc=False):
    """A due task of a limited queue. ``mark`` is the ``alone_deaths`` of a suspect, ``bytes`` the size of its payloads.

    ``last`` says that the claim read no further in its share, which may have more tasks.
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

    ``more`` says that there may be tasks which the claim has not read.
    """

    taken: tuple[WaitingTask, ...] = ()
    refused: int | None = None
    more: bool = False


def least(*limits: int | None) -> int | None:
    """The smallest of some limits; None if there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def reach(most: int, room: int | None, shares: int) -> int:
    """How many tasks of each share a claim reads; over all ``shares``, twice as many as it could take."""
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
    """Which due tasks to take: by priority; within one priority the shares take turns, as far as there is room.

    The share of which least runs comes first, then the next one behind the share whose turn it was last. Within a
    share the task that has been due longest comes first, then the one asked for first. No task overtakes one for which
    there is no room, so that a costly task is not put off for ever; but a share at its own limit is overtaken.
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
    """How many tasks of one queue, share and cost workers hold; it is not stored but counted.

    Of a kind with limits (the name is that of its row) they are those of its processes that have a place.
    """

    name: str
    share: str | None
    cost: int
    tasks: int


class QueueDepth(Struct, frozen=True, gc=False):
    """How many tasks of a queue no worker holds, and how many of these are not due yet; it is not stored but counted.

    ``due_at`` is the earliest time at which one of them was or will be due. More than 100,000 are not counted. Of a
    kind with limits (the name is that of its row) these are the due processes that wait for a place.
    """

    name: str
    waiting: int
    delayed: int
    due_at: int | None


class QueueLoads(Struct, frozen=True):
    """The queues with limits and their loads, which say why a task does not begin; circuits say why a step does not.

    ``outages`` say it of whole kinds, by their names.
    """

    queues: tuple[Queue, ...] = ()
    loads: tuple[Load, ...] = ()
    circuits: tuple[Circuit, ...] = ()
    outages: dict[str, OutageState] = {}

    def held(self, process: Process, now: int) -> OutageState | None:
        """The outage for which a process that is due is not taken; None if it may be."""
        found = self.outages.get(process.kind)
        return None if found is None or found.allowance(now) is None else found

    def barred(self, process: Process) -> Circuit | None:
        """The circuit for which the process says that it waits, if it is not closed."""
        waits = (process.awaiting or "").split(", ")
        return next((one for one in self.circuits if not one.closed and BREAKER_MARK + one.name in waits), None)

    def of(self, process: Process, now: int) -> tuple[str, str] | None:
        """Who moves a due task that its queue holds back, and why it waits, for people; None if the queue does not."""
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
