"""Stillness: the law that nothing stands still for a lease without a death.

A lease that lapses, a due process that no worker claims, a held process that waits for nothing: the engine repairs each
in the end, so that no other law sees it, and each has cost the time of a lease. It is a violation unless something has
struck the worker that ought to have moved the process: the worker was killed, stopped or paused, one of its calls
failed, or a clock was set.

A worker with little room takes what is due in its order: while it takes what comes before a process, that one waits in
its turn and does not stand still. It takes nothing while it frees what a claim has given it whose answer was lost, nor
while it starts, which takes ten calls of the store.

The law asks less of a worker that is too old for what a process holds: a type of event that it does not know, a patch
that its code never asks for, fields of a newer form. Only a newer worker can go on with it. The old worker need not
claim it. If the old worker has it, and the process has unheard messages, the lease may lapse: once released, the
process would be due at once, for the same worker.

What waits for a place among the processes of its kind stands still only if all the time there was room for it, its
limits have stayed the same, and none of the others has got a place or given one back.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from perdure import limits
from perdure.kernel.checkpoint import is_checkpoint, parted
from perdure.kernel.child import is_task
from perdure.kernel.kind import kind_of, pace
from perdure.kernel.patch import taken_in
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.queue import Queue
from perdure.kernel.stored import UnknownNumber
from perdure.store.sqlite.queue import read
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.violation import Violation

if TYPE_CHECKING:
    from perdure.runtime.scheduler import Scheduler
    from perdure.testing.simulator.cluster import Cluster
    from perdure.testing.simulator.node import Node

LAW = "nothing_stands_still"
LOOK_SECONDS = 0.5
SLACK_SECONDS = 2 * limits.POLL_SECONDS + 2.0
"""A hint may be lost: then a worker looks by itself after a second, and after looks in vain a second later."""
WAYS = 6
"""At most so many ways between a worker and the store lie between two moves of a process."""


class Stillness:
    """Knows when each process moved last, and which worker had it; compares that with the last blow to this worker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._moved: dict[bytes, float] = {}
        self._leased: dict[bytes, float] = {}
        self._lives: dict[bytes, Life] = {}
        self._taking_nothing: dict[int, float] = {}
        self._taken: dict[int, list[tuple[float, Process]]] = {}
        self._limited: dict[str, Queue] = {}
        self._full: dict[str, float] = {}
        self._looked = 0.0
        options, slowest = cluster.swarm.options, max(cluster.swarm.latencies)
        self.bound = SLACK_SECONDS + WAYS * slowest
        self.lease = options.lease_seconds
        margin = min(limits.LEASE_MARGIN_SECONDS, self.lease / 4)
        # A renewal is due when a third of the lease is over, goes with the next beat, and may have to wait for another.
        self.applies = self.lease / 3 + options.beat_seconds + margin + 4 * slowest < self.lease

    def touched(self, life: Life, was: Process | None, now: Process, mark: int, *, worker: bool) -> None:
        """A transaction of a life has changed a row; ``mark`` is the store's time.

        A taker that is no ``worker`` is a command: it has the row for a moment, and comes again if it was too late.
        """
        time = self._cluster.loop.now
        if worker and now.owner is not None and (was is None or was.owner != now.owner):
            self._lives[now.owner] = life
            if was is not None:
                self._taken.setdefault(life.number, []).append((time, was))
        if was is not None and was.owner is not None and was.owner != now.owner:
            self._changed_hands(life, was, mark)
        if now.owner is not None and (was is None or (was.owner, was.due_at) != (now.owner, now.due_at)):
            self._leased[now.id] = time
        if was is None or (was.version, was.token, was.inbox, was.owner) != (
            now.version, now.token, now.inbox, now.owner,
        ):  # fmt: skip
            self._moved[now.id] = time
        if now.kind in self._limited and _has_place(was) is not _has_place(now):
            self._full[now.kind] = time

    def waits(self, life: Life, seconds: float) -> None:
        """After a fail-over a life claims nothing for so long, so that others can hold what was set back."""
        self._taking_nothing[life.number] = self._cluster.loop.now + seconds

    def _changed_hands(self, life: Life, was: Process, mark: int) -> None:
        """A row was taken from its owner: if that was because its lease was over, the owner was struck before."""
        owner = self._lives.get(was.owner or b"")
        if owner is None or was.due_at is None or was.due_at > mark or owner is life:
            return
        if was.deadline is not None and was.deadline <= mark:
            return  # what is over its deadline is not renewed (rule 14)
        if was.inbox > was.seen and self._is_beyond(owner, was):
            return  # see above: such a worker waits for the end of its lease, as it puts off what has no messages
        if self._calm(owner, self._leased.get(was.id, 0.0)):
            self._broken(was, f"its lease has lapsed, though nothing has struck {owner.name}, which had it")

    def look(self, mark: int) -> None:
        """A transaction has been made: now and then, look whether something stands still."""
        time = self._cluster.loop.now
        if time - self._looked < LOOK_SECONDS:
            return
        self._looked = time
        self._look_at_kinds(mark)
        for node in self._cluster.workers:
            if node.life is not None and not _has_room(node):
                self._taking_nothing[node.life.number] = time
        for process in self._cluster.monitor.rows():
            if process.status is not Status.RUNNING or process.reminder or is_task(process.kind):
                continue
            moved = self._moved.get(process.id, time)
            if process.owner is not None:
                self._look_at_owned(process, moved)
            elif process.deaths < limits.SUSPECT_DEATHS and time - moved > self.bound:
                overdue = mark - (process.due_at or mark)
                if overdue > self.bound * 1_000_000:
                    self._look_at_due(process)

    def _look_at_kinds(self, mark: int) -> None:
        """Note which kinds have limits, and of which they have changed or leave no room now."""
        connection = self._cluster.server.connection
        if connection is None:
            return
        limited = {kind: row for row in read(connection, Queue) if (kind := kind_of(row)) is not None}
        before, self._limited = self._limited, limited
        for kind, row in limited.items():
            same = kind in before and before[kind].version == row.version
            running = sum(one.kind == kind and _has_place(one) for one in self._cluster.monitor.rows())
            if not same or (row.concurrency is not None and running >= row.concurrency) or pace(row, mark) == 0:
                self._full[kind] = self._cluster.loop.now

    def _look_at_due(self, process: Process) -> None:
        """A process has been due for long: then every worker that could have taken it was struck."""
        since = self._cluster.loop.now - self.bound
        if process.opened_at is None and self._full.get(process.kind, -inf) >= since:
            return
        for node in self._cluster.workers:
            if node.alone or node.life is None or not _takes(node, process) or not self._calm(node.life, since):
                continue
            if self._is_beyond(node.life, process):
                continue  # it keeps away, so that newer ones look first
            if self._taking_nothing.get(node.life.number, 0.0) < since and not self._takes_others_first(
                node.life, process, since
            ):
                self._broken(process, f"it has been due for over {self.bound:g} s, and {node.name} does not take it")

    def _takes_others_first(self, life: Life, process: Process, since: float) -> bool:
        """Whether a life has taken, since then, what comes before a process: lapsed rows, then by priority and time."""
        taken = self._taken[life.number] = [pair for pair in self._taken.get(life.number, ()) if pair[0] >= since]
        place = process.priority, process.due_at or 0
        return any(row.owner is not None or (row.priority, row.due_at or 0) <= place for _, row in taken)

    def _look_at_owned(self, process: Process, moved: float) -> None:
        """A worker holds the process: then it waits for something there."""
        time = self._cluster.loop.now
        since = time - self.lease - self.bound
        owner = self._lives.get(process.owner or b"")
        if owner is None:
            return
        for node in self._cluster.workers:
            worker = None if node.engine is None or node.life is not owner else node.engine.worker
            if worker is None:
                continue
            if worker.claimer.unsure and process.id not in worker.scheduler.instances:
                self._taking_nothing[owner.number] = time
            elif moved <= since and self._calm(owner, since) and _rests_for_nothing(worker.scheduler, process.id):
                self._broken(process, f"{owner.name} has held it for longer than a lease, and it waits for nothing")

    def _is_beyond(self, life: Life, process: Process) -> bool:
        """Whether a process holds what a life is too old to know: only a newer one could go on with it."""
        known = self._cluster.monitor.known.get(process.id)
        if known is None:
            return False
        if (taken_in(known.events) or _has_form(process)) and self._has_left(life, process.id):
            return True
        if any(store.life is life and store.newer for store in self._cluster.server.stores):
            return False
        return any(isinstance(event.type, UnknownNumber) for event in known.events)

    def _has_left(self, life: Life, process: bytes) -> bool:
        """Whether the worker of a life says that it leaves a process to those with newer code."""
        engines = [node.engine for node in self._cluster.workers if node.life is life]
        workers = [engine.worker for engine in engines if engine is not None]
        return any(one is not None and one.scheduler.unreadable.handover.has_left(process) for one in workers)

    def _calm(self, life: Life, since: float) -> bool:
        """Whether a life has lived undisturbed since that time, on a clock that was never set."""
        return (
            self.applies and not life.dead and not life.paused and life.struck_at < since and self._cluster.wall.steady
        )

    def _broken(self, process: Process, text: str) -> None:
        violation: Violation = self._cluster.monitor.violation(LAW, process, text)
        self._cluster.loop.fail(violation)


def _has_form(process: Process) -> bool:
    """Whether a process is a machine whose fields are not of the first form."""
    state = process.state
    return state is not None and is_checkpoint(state) and parted(state)[0].form > 1


def _has_place(process: Process | None) -> bool:
    """Whether a process counts among those of its kind that run."""
    return process is not None and process.opened_at is not None and process.status not in FINAL


def _rests_for_nothing(scheduler: Scheduler, process: bytes) -> bool:
    """Whether a process is held there, and nothing is under way that would bring it on: no step, commit or timer."""
    instance = scheduler.instances.get(process)
    if instance is None or instance.commit is not None or instance.inbox.unheard or instance.outbox is not None:
        return False
    under_way = instance.steps.in_flight or instance.steps.retries
    return not (under_way or instance in scheduler.ready or instance in scheduler.alarms)


def _takes(node: Node, process: Process) -> bool:
    """Whether a worker there hosts it, and has room."""
    worker = None if node.engine is None else node.engine.worker
    if worker is None or worker.scheduler.draining or (process.kind, process.code) not in worker.registry.hosted:
        return False
    return worker.scheduler.shortages.serves(process.kind) and _has_room(node)


def _has_room(node: Node) -> bool:
    """Whether a worker is there that may hold more processes than it does: in a shortage it takes fewer than usual."""
    worker = None if node.engine is None else node.engine.worker
    if worker is None:
        return False
    return len(worker.scheduler.instances) < worker.scheduler.shortages.room(worker.claimer.capacity)
