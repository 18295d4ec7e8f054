"""Kinds with limits as people see and set them: how many processes run and wait, and what the limits are."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from perdure.authoring.registry import Registry
from perdure.authoring.start import NamedWorkflow
from perdure.authoring.workflow import Workflow
from perdure.client import validation
from perdure.client.queues import changed
from perdure.client.view import instant
from perdure.clock import SECOND
from perdure.errors import InvalidInput
from perdure.kernel.child import is_task
from perdure.kernel.kind import DECLARED, KIND_MARK, Limits, is_limited, kind_of, unlimited
from perdure.kernel.names import LIBRARY, check_name
from perdure.kernel.plain import shown
from perdure.kernel.queue import Load, Queue, QueueDepth
from perdure.kernel.transition import Sender
from perdure.store.base import Store


@dataclass(frozen=True, slots=True)
class KindView:
    """What the verbs on kinds return: the limits (None: no limit), and how many processes they concern now.

    ``admitted`` processes have a place among those of their kind, of which there are ``running``; at most ``starts``
    are admitted in ``per`` seconds. ``waiting`` ones wait for a place, the first of them for ``oldest`` seconds; more
    than 100,000 are not counted. ``who``, ``why`` and ``origin`` describe the last change, made at ``changed_at``.
    """

    kind: str
    admitted: int
    waiting: int
    running: int | None
    starts: int | None
    per: float
    oldest: float
    changed_at: datetime | None
    who: str
    why: str
    origin: str


class LimitedKinds:
    """The verbs on kinds with limits, as in ``engine.kinds.list()``; a change is recorded with who, why and origin."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self._declared: dict[str, Limits] = {}

    async def limit(
        self, kind: str, limits: Limits, *, who: str = "", why: str = "", origin: str = "client"
    ) -> KindView:
        """Set the limits of a kind, over all workers and from now on, instead of those that it has.

        What runs already goes on, and counts: nothing more is admitted until there is room. Raises InvalidInput
        (InvalidKey).
        """
        if not isinstance(limits, Limits):
            raise InvalidInput(f"the limits of kind {shown(kind)} are {shown(limits)}. Give Limits(running=10).")
        return await self._seen(await self._changed(_checked(kind), limits, validation.sender(who, why, origin)))

    async def unlimit(self, kind: str, *, who: str = "", why: str = "", origin: str = "client") -> KindView:
        """Take the limits of a kind away: all that waits for a place goes on. Raises InvalidInput (InvalidKey)."""
        return await self._seen(await self._changed(_checked(kind), None, validation.sender(who, why, origin)))

    async def list(self) -> builtins.list[KindView]:
        """Every kind that has limits or ever had some, by name."""
        rows = [row for row in await self.store.records(Queue) if kind_of(row) is not None]
        if not rows:
            return []
        now = await self.store.now()
        loads, depths = await self.store.records(Load), await self.store.records(QueueDepth)
        return [_view(row, loads, depths, now) for row in rows]

    async def declare(self, workflow: Workflow[..., object] | NamedWorkflow) -> None:
        """Put the limits in force that a workflow declares, unless a person has set others.

        If it declares none, those that it has declared once are taken away.
        """
        declared = workflow.limits
        if declared is not None and self._declared.get(workflow.name) == declared:
            return

        def stands(row: Queue) -> bool:
            if declared is None:
                return row.origin != DECLARED or not is_limited(row)
            return row.version > 0 and (row.origin != DECLARED or declared.row(row) == row)

        sender = Sender("", f"its workflow declares {'none' if declared is None else 'them'}", DECLARED)
        await self._changed(workflow.name, declared, sender, unless=stands)
        if declared is not None:
            self._declared[workflow.name] = declared

    async def _changed(
        self, kind: str, limits: Limits | None, sender: Sender, unless: Callable[[Queue], bool] = lambda _: False
    ) -> Queue:
        def change(old: Queue, _sender: Sender) -> Queue:
            return unlimited(old) if limits is None else limits.row(old)

        self.registry.note_limits(kind)  # also if the limits are taken away: one that is claimed is right at any time
        return await changed(self.store, KIND_MARK + kind, change, sender, unless)

    async def _seen(self, row: Queue) -> KindView:
        loads, depths = await self.store.records(Load), await self.store.records(QueueDepth)
        return _view(row, loads, depths, await self.store.now())


def _checked(kind: str) -> str:
    name = check_name(kind, "the kind")
    if is_task(name):
        raise InvalidInput(f"{name!r} is a queue. Limit it with engine.queues.limit({name[1:]!r}, ...).")
    if name.startswith(LIBRARY):
        raise InvalidInput(f"{name!r} is a kind of Perdure's own, which has no limits. Name a kind of yours.")
    return name


def _view(row: Queue, loads: builtins.list[Load], depths: builtins.list[QueueDepth], now: int) -> KindView:
    depth = next((one for one in depths if one.name == row.name), QueueDepth(row.name, 0, 0, None))
    return KindView(
        kind=kind_of(row) or "",
        admitted=sum(load.tasks for load in loads if load.name == row.name),
        waiting=depth.waiting if is_limited(row) else 0,
        running=row.concurrency,
        starts=row.rate,
        per=row.per / SECOND,
        oldest=0.0 if depth.due_at is None else max(0.0, (now - depth.due_at) / SECOND),
        changed_at=instant(row.changed_at) if row.version else None,
        who=row.who,
        why=row.why,
        origin=row.origin,
    )
