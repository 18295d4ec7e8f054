"""Retention by rules as people see and run it: how far each rule has come, what it would remove, and doing so now."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from perdure import limits
from perdure.client.view import instant
from perdure.errors import ArchiveUnwritable
from perdure.kernel.process import Process
from perdure.kernel.retention import RetentionRule, RowPlace, deciding, marks
from perdure.retention.family import awaited
from perdure.retention.remover import Remover
from perdure.store.base import Search, Store

OnRetention = Callable[["RetentionRun"], None]


@dataclass(frozen=True, slots=True)
class RetentionView:
    """How far a rule has come. Times are datetimes in UTC.

    It has looked at all processes that ended up to ``reached``, and an engine that has the rule last looked at
    ``seen_at``. ``removed`` and ``archived`` count processes since the rules before it last changed; ``left`` are those
    that it could not remove yet: parents wait for them, or they cannot be read here. It looks at these again hourly.
    """

    rule: RetentionRule
    seen_at: datetime | None
    reached: datetime | None
    removed: int
    archived: int
    left: int


@dataclass(slots=True)
class RetentionForecast:
    """What a rule would remove now: how many processes, and when the one that ended first did.

    ``waiting`` more are kept for now, since their parents still wait for them.
    """

    rule: RetentionRule
    processes: int = 0
    oldest: datetime | None = None
    waiting: int = 0


@dataclass(slots=True)
class RetentionRun:
    """What a run has done: how many processes it ``removed`` and ``archived``, into which ``files``, and ``left``."""

    removed: int = 0
    archived: int = 0
    left: int = 0
    files: builtins.list[str] = field(default_factory=list)


class Retention:
    """The verbs on rules of retention: ``engine.retention``. The rules are those of this engine, see Engine.

    Workers with rules go by them every half minute, without any of these verbs.
    """

    def __init__(self, store: Store, remover: Remover | None) -> None:
        self.store = store
        self._remover = remover

    @property
    def rules(self) -> Sequence[RetentionRule]:
        """The rules, in the order in which they are asked: the first that fits a process decides about it."""
        return () if self._remover is None else self._remover.rules

    async def list(self) -> builtins.list[RetentionView]:
        """Every rule in its order, and how far it has come. Raises StoreUnavailable."""
        if self._remover is None:
            return []
        state = await self._remover.read()
        views = []
        for mark, rule in zip(marks(self.rules), self.rules, strict=True):
            one = state.of(mark, rule)
            seen = instant(one.seen_at) if one.seen_at else None
            views.append(RetentionView(rule, seen, instant(one.at), one.removed, one.archived, one.left))
        return views

    async def preview(self) -> builtins.list[RetentionForecast]:
        """What each rule would remove now. Every process that has ended is read, and none is changed.

        Raises StoreUnavailable.
        """
        now = await self.store.now()
        forecasts = [RetentionForecast(rule) for rule in self.rules]
        ends = [to for rule in self.rules if (to := rule.due_to(now)) is not None]
        after: RowPlace | None = None
        while ends:
            page = await self.store.search(Search(ended_to=max(ends), after=after, limit=limits.SWEEP_ROWS))
            for forecast in forecasts:
                await self._count(forecast, page, now)
            if page.in_all < limits.SWEEP_ROWS:
                break
            after = page[-1].changed_at, page[-1].id
        return forecasts

    async def _count(self, forecast: RetentionForecast, page: Sequence[Process], now: int) -> None:
        to = forecast.rule.due_to(now)
        if to is None:
            return
        due = [row for row in page if row.changed_at <= to and deciding(self.rules, row) is forecast.rule]
        waiting = await awaited(self.store, due)
        forecast.waiting += len(waiting)
        forecast.processes += len(due) - len(waiting)
        if forecast.oldest is None and due:
            forecast.oldest = instant(due[0].changed_at)

    async def run(self, on_progress: OnRetention | None = None) -> RetentionRun:
        """Archive and remove all that the rules say, now and here; it may be broken off anywhere, and begun again.

        ``on_progress`` is called after each round with what has been done so far. What a rule had to leave before is
        looked at again. Raises ArchiveUnwritable, StoreUnavailable.
        """
        done = RetentionRun()
        anew = True
        while self._remover is not None:
            one = await self._remover.round(at_once=True, anew=anew)
            # If we die here the note says where to go on.
            done.removed += one.removed
            done.archived += one.archived
            done.left += one.left
            done.files += one.files
            if on_progress is not None:
                on_progress(done)
            if one.unwritable:
                raise ArchiveUnwritable(f"{one.unwritable}. Make it writable, or give the rule another folder")
            if not one.more:
                break
            anew = False
        return done
