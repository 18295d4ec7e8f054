"""Queues as people see and set them: what waits and runs in each, its limits, and whether it is blocked."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.polling import unpolled_queues
from perdure.client.queue_figures import QueueFigures, queue_figures
from perdure.client.view import instant
from perdure.clock import Duration
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.names import check_name
from perdure.kernel.plain import shown
from perdure.kernel.process import Status
from perdure.kernel.queue import Load, Queue
from perdure.kernel.transition import Sender
from perdure.store.base import Search, Store

Change = Callable[[Queue, Sender], Queue]
"""Makes a queue's new row from the old one, for the sender of the change."""
MOST = 1_000_000_000
"""The largest number that a limit can be."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """What the verbs on queues return: the limits (None: no limit), and how many tasks wait and run now.

    ``per`` is in seconds. ``full`` says how much of ``concurrency`` is taken: the sum of the costs of running tasks.
    ``who``, ``why`` and ``origin`` describe the last change, made at ``changed_at``. ``delayed`` of the waiting ones
    are not due yet, and the one that was due first has waited ``oldest`` seconds. ``workers`` living workers serve the
    queue, and one has looked for work at ``polled_at``; None if none has in the last day. ``unpolled`` says that steps
    wait, without a label or with one, that no live worker serves.
    """

    name: str
    waiting: int
    running: int
    full: int
    concurrency: int | None
    rate: int | None
    per: float
    share_concurrency: int | None
    blocked_at: datetime | None
    blocked_by: str
    blocked_why: str
    changed_at: datetime | None
    who: str
    why: str
    origin: str
    delayed: int = 0
    oldest: float = 0.0
    workers: int = 0
    polled_at: datetime | None = None
    unpolled: bool = False


class Queues:
    """The verbs on queues, as in ``engine.queues.list()``; every change is recorded with who, why and origin."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def limit(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Duration | None = None,
        share_concurrency: int | None = None,
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> QueueView:
        """Set the limits of a queue, over all workers; a limit that is not given is removed.

        Limits count the costs of tasks: at most ``concurrency`` runs at once, at most ``share_concurrency`` of each
        share, and at most ``rate`` begins in ``per`` seconds (default: 1). Once this was called for a queue, its shares
        take turns, even without a limit. Raises InvalidInput, InvalidKey.
        """
        numbers = {"concurrency": concurrency, "rate": rate, "share_concurrency": share_concurrency}
        for name, number in numbers.items():
            if number is not None and (type(number) is not int or not 1 <= number <= MOST):
                raise InvalidInput(f"{name}={shown(number)}. Give a whole number from 1, or None for no limit.")
        if per is not None and rate is None:
            raise InvalidInput(f"per={shown(per)} is the period of a rate, but there is no rate=. Give both.")
        period = validation.duration(1.0 if per is None else per, "the period of the rate")
        return await self._change(
            queue, lambda old, sender: replace(old, per=period, **numbers), validation.sender(who, why, origin)
        )

    async def block(self, queue: str, *, who: str = "", why: str = "", origin: str = "client") -> QueueView:
        """Begin no more tasks of the queue; running tasks go on. A blocked queue shows who blocked it first."""
        return await self._change(queue, blocked, validation.sender(who, why, origin))

    async def unblock(self, queue: str, *, who: str = "", why: str = "", origin: str = "client") -> QueueView:
        """Let the waiting tasks of the queue begin again, within its limits."""
        return await self._change(queue, unblocked, validation.sender(who, why, origin))

    async def list(self, *, unpolled: bool = False) -> builtins.list[QueueView]:
        """Every queue that was ever limited or blocked, or in which tasks wait or run, by name.

        ``unpolled`` leaves out all but those in which steps wait that no live worker serves.
        """
        queues = {queue.name: queue for queue in await self.store.records(Queue) if not queue.name.startswith(" ")}
        unfinished = await self.store.count(Search(statuses=(Status.RUNNING,), tasks=True))
        counts = {kind.removeprefix(QUEUE_MARK): number for kind, _, number in unfinished if is_task(kind)}
        loads = await self.store.records(Load)
        figures = {one.name: one for one in await queue_figures(self.store)}
        lonely = await unpolled_queues(self.store)
        views = [
            _view(
                queues.get(name, Queue(name, 0)),
                counts.get(name, 0),
                loads,
                figures.get(name, QueueFigures(name)),
                unpolled=name in lonely,
            )
            for name in sorted(queues.keys() | counts.keys())
        ]
        return [view for view in views if view.unpolled or not unpolled]

    async def _change(self, name: str, change: Change, sender: Sender) -> QueueView:
        await changed(self.store, check_name(name, "the name of the queue"), change, sender)
        return next(view for view in await self.list() if view.name == name)


async def changed(
    store: Store, name: str, change: Change, sender: Sender, unless: Callable[[Queue], bool] = lambda _: False
) -> Queue:
    """Read a queue's row, change it and write it; if it has changed meanwhile, try again. Raises IllegalMove.

    A row of which ``unless`` holds at that moment stays as it is.
    """
    for _ in range(limits.COMMAND_TRIES):
        old = next((queue for queue in await store.records(Queue) if queue.name == name), Queue(name, 0))
        if unless(old):
            return old
        now = await store.now()
        said = {"changed_at": now, "who": sender.who, "why": sender.why, "origin": sender.origin}
        new = change(replace(old, version=old.version + 1, **said), sender)
        rows = await store.records(Queue, [new])
        stored = next((queue for queue in rows if queue.name == name), None)
        if stored is not None and replace(stored, next_at=new.next_at, turn=new.turn) == new:
            return stored
    raise IllegalMove(f"queue {name} kept changing meanwhile; nothing was done, try again")


def blocked(old: Queue, sender: Sender) -> Queue:
    """The row of a queue blocked by the sender, or as it is if it is blocked already."""
    if old.blocked_at is not None:
        return old
    return replace(old, blocked_at=old.changed_at, blocked_by=sender.who, blocked_why=sender.why)


def unblocked(old: Queue, sender: Sender) -> Queue:
    """The row of a queue that is not blocked any more."""
    return replace(old, blocked_at=None, blocked_by="", blocked_why="")


def _view(
    queue: Queue, unfinished: int, loads: Sequence[Load], figures: QueueFigures, *, unpolled: bool = False
) -> QueueView:
    mine = [load for load in loads if load.name == queue.name]
    running = sum(load.tasks for load in mine)
    told: dict[str, Any] = {
        name: getattr(queue, name)
        for name in ("concurrency", "rate", "share_concurrency", "blocked_by", "blocked_why", "who", "why", "origin")
    }
    return QueueView(
        name=queue.name,
        waiting=max(unfinished - running, 0),
        running=running,
        full=sum(queue.weight(load.cost) * load.tasks for load in mine),
        per=queue.per / 1_000_000,
        blocked_at=instant(queue.blocked_at),
        changed_at=instant(queue.changed_at) if queue.version else None,
        delayed=figures.delayed,
        oldest=figures.oldest,
        workers=figures.workers,
        polled_at=instant(figures.polled_at) if figures.polled_at else None,
        unpolled=unpolled,
        **told,
    )
