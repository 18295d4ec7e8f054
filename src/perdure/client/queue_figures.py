"""The figures of queues: what waits in each, for how long, who serves it, and when it was last looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from perdure.clock import SECOND
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.figures import figures_of
from perdure.kernel.queue import Load, QueueDepth
from perdure.kernel.worker import Offer, WorkerRow
from perdure.store.base import Store


class QueueFigures(Struct, frozen=True):
    """One queue. Of the tasks that ``wait`` some are ``delayed``: not due yet, mostly between two attempts.

    ``running`` are held by workers. ``oldest`` is for how many seconds the task that was due first has waited.
    ``workers`` counts the living ones that serve the queue. ``polled_at`` is when one of them, or one that has ended
    in the last day, has looked for work, in microseconds by the store's clock; 0 if none is known.
    """

    name: str
    waiting: int = 0
    delayed: int = 0
    running: int = 0
    oldest: float = 0.0
    workers: int = 0
    polled_at: int = 0


async def queue_figures(store: Store) -> list[QueueFigures]:
    """The queues in which something waits or runs, or that a living worker serves, by name."""
    now = await store.now()
    depths = await store.records(QueueDepth)
    loads = await store.records(Load)
    return reckoned(depths, loads, await store.workers(ended=True), now)


def reckoned(
    depths: Iterable[QueueDepth], loads: Iterable[Load], workers: Iterable[WorkerRow], now: int
) -> list[QueueFigures]:
    """The figures of queues, from what the store has counted."""
    waiting = {one.name: one for one in depths if not one.name.startswith(" ")}  # a kind is no queue
    running: dict[str, int] = {}
    for load in loads:
        if not load.name.startswith(" "):
            running[load.name] = running.get(load.name, 0) + load.tasks
    serving: dict[str, list[WorkerRow]] = {}
    for worker in workers:
        for name in served(worker):
            serving.setdefault(name, []).append(worker)
    alive = {name: sum(one.ended_at is None for one in found) for name, found in serving.items()}
    names = waiting.keys() | running.keys() | {name for name, number in alive.items() if number}
    return [
        _figures(waiting.get(name), running.get(name, 0), serving.get(name, ()), alive.get(name, 0), name, now)
        for name in sorted(names)
    ]


def served(worker: WorkerRow) -> set[str]:
    """The queues that a worker serves, or has served."""
    hosted = Offer.decode(worker.hosts).hosted
    return {kind.removeprefix(QUEUE_MARK) for kind, _ in hosted if kind.startswith(QUEUE_MARK)}


def _figures(
    depth: QueueDepth | None, running: int, workers: Sequence[WorkerRow], alive: int, name: str, now: int
) -> QueueFigures:
    polled = max((figures_of(one.figures).polled_at for one in workers), default=0)
    if depth is None:
        return QueueFigures(name, running=running, workers=alive, polled_at=polled)
    oldest = 0.0 if depth.due_at is None else max(0.0, (now - depth.due_at) / SECOND)
    return QueueFigures(name, depth.waiting, depth.delayed, running, oldest, alive, polled)
