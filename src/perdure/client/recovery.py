"""Recovery as people see and switch it: whether workers end dead workers and take over processes by themselves."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from perdure.client import validation
from perdure.client.queues import MOST, blocked, changed, unblocked
from perdure.client.view import instant
from perdure.clock import SECOND, Duration
from perdure.errors import InvalidInput
from perdure.kernel.note import Note
from perdure.kernel.plain import shown
from perdure.kernel.queue import SWITCH, Queue
from perdure.kernel.recovery_budget import NAME, RecoveryBudget
from perdure.kernel.sweep_pass import Passes, sweep_of
from perdure.limits import SWEEP_ROWS
from perdure.store.base import Overdue, Search, Store, switch


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """Whether automatic recovery is paused, since when, by whom and why; who made the last change, why, from where.

    ``rate`` is its budget: how many processes workers revive in ``per`` seconds at most, all together; None is no
    limit. ``left`` is how many they may revive now.
    """

    paused_at: datetime | None
    paused_by: str
    paused_why: str
    changed_at: datetime | None
    who: str
    why: str
    origin: str
    rate: int | None = None
    per: float = 1.0
    left: int | None = None

    @property
    def paused(self) -> bool:
        """Whether automatic recovery is paused now."""
        return self.paused_at is not None


@dataclass(frozen=True, slots=True)
class SweepView:
    """The passes of one sweep, over all workers. ``at`` is when the last one without an error ended, None if none has.

    ``by`` is the worker that made it, ``took`` its seconds, ``seen`` how many rows it read, ``changed`` how many of
    them it freed, ended, removed or reported, and ``left`` how many it left alone, since recovery was paused or its
    budget spent. ``passes``, ``total_seen``, ``total_changed`` and ``errors`` count since the first pass. ``error`` is
    the class of the last error, raised at ``failed_at``; ``alarmed_at`` is when people were last told that the sweep is
    silent. ``every`` is its pace: the seconds between two passes if there is nothing to do.
    """

    sweep: str
    at: datetime | None
    by: str
    took: float
    seen: int
    changed: int
    left: int
    passes: int
    total_seen: int
    total_changed: int
    errors: int
    error: str
    failed_at: datetime | None
    alarmed_at: datetime | None
    every: float = 0.0


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """How far one sweep has come with what it recovers: the present wave, or the last one.

    A wave are passes with less than a minute between those that find something. It began at ``since``, and its last
    find was at ``at``; by then ``examined`` rows were read, and ``recovered`` of them freed or ended. ``waiting`` is
    how many there are still, at most 500: ``more`` says that there may be others. The first numbers come ten seconds
    late, so that of a row in both only the second is true.
    """

    sweep: str
    since: datetime | None
    at: datetime | None
    examined: int
    recovered: int
    waiting: int
    more: bool

    @property
    def total(self) -> int:
        """How many there were to recover, as far as is known."""
        return self.recovered + self.waiting


RECOVERING = {
    "owner gone": Overdue.ORPHANED,
    "lease lapsed": Overdue.LAPSED,
    "process overdue": Overdue.EXPIRED,
    "process idle": Overdue.IDLE,
}
"""The sweeps that recover processes, with what each of them looks for."""


class Recovery:
    """The switch of automatic recovery, for all workers on the database: ``engine.recovery``.

    While recovery is paused, no worker is ended by others, no lapsed lease is taken over, and no process over its
    deadline is forced to end; such findings are only reported. Ordinary work goes on: timers, retries, new starts.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def state(self) -> RecoveryView:
        """Read whether recovery is paused, since when, by whom and why, and its budget."""
        return await self._view(await switch(self.store))

    async def pause(self, *, who: str = "", why: str = "", origin: str = "client") -> RecoveryView:
        """Pause recovery, at once for all workers. Its state shows who paused it first."""
        return await self._view(await changed(self.store, SWITCH, blocked, validation.sender(who, why, origin)))

    async def resume(self, *, who: str = "", why: str = "", origin: str = "client") -> RecoveryView:
        """Let workers recover by themselves again; the next sweeps find what there is to recover."""
        return await self._view(await changed(self.store, SWITCH, unblocked, validation.sender(who, why, origin)))

    async def limit(
        self, rate: int | None, per: Duration = 60.0, *, who: str = "", why: str = "", origin: str = "client"
    ) -> RecoveryView:
        """Let workers revive at most ``rate`` processes in ``per`` seconds, all together; None removes the limit.

        The others wait, and are revived later, those that wait longest first. Raises InvalidInput.
        """
        if rate is not None and (type(rate) is not int or not 1 <= rate <= MOST):
            raise InvalidInput(f"rate={shown(rate)}. Give a whole number from 1, or None for no limit.")
        period, sender = validation.duration(per, "the period of the rate"), validation.sender(who, why, origin)
        new = await changed(self.store, SWITCH, lambda old, _: replace(old, rate=rate, per=period), sender)
        return await self._view(new)

    async def sweeps(self) -> builtins.list[SweepView]:
        """How the sweeps pass that find what is stuck, by name. A pass is shown some ten seconds after it has ended."""
        notes = await self.store.records(Note)
        return [_sweep(sweep, note.read(Passes)) for note in notes if (sweep := sweep_of(note)) is not None]

    async def progress(self) -> builtins.list[RecoveryProgress]:
        """How far the sweeps have come that recover processes: what they have done, and what waits still."""
        notes = {sweep_of(note): note.read(Passes) for note in await self.store.records(Note)}
        found = []
        for sweep, what in RECOVERING.items():
            passes, rows = notes.get(sweep, Passes()), await self.store.search(Search(overdue=what, limit=SWEEP_ROWS))
            since, at = instant(passes.wave_since or None), instant(passes.wave_at or None)
            more = rows.in_all >= SWEEP_ROWS
            found.append(RecoveryProgress(sweep, since, at, passes.examined, passes.recovered, rows.in_all, more))
        return found

    async def _view(self, row: Queue) -> RecoveryView:
        left = None
        if row.rate is not None:
            spent = [note.read(RecoveryBudget) for note in await self.store.records(Note) if note.name == NAME]
            left = (spent[0] if spent else RecoveryBudget()).left(row, await self.store.now())
        return RecoveryView(
            paused_at=instant(row.blocked_at),
            paused_by=row.blocked_by,
            paused_why=row.blocked_why,
            changed_at=instant(row.changed_at) if row.version else None,
            who=row.who,
            why=row.why,
            origin=row.origin,
            rate=row.rate,
            per=row.per / SECOND,
            left=left,
        )


def _sweep(sweep: str, passes: Passes) -> SweepView:
    return SweepView(
        sweep=sweep,
        at=instant(passes.at or None),
        by=passes.by,
        took=passes.took / SECOND,
        seen=passes.seen,
        changed=passes.changed,
        left=passes.left,
        passes=passes.passes,
        total_seen=passes.total_seen,
        total_changed=passes.total_changed,
        errors=passes.errors,
        error=passes.error,
        failed_at=instant(passes.failed_at or None),
        alarmed_at=instant(passes.alarmed_at or None),
        every=passes.every / SECOND,
    )
