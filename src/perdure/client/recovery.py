"""Recovery as people see and switch it: whether workers end dead workers and take over processes by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from perdure.client import validation
from perdure.client.queues import blocked, changed, unblocked
from perdure.client.view import instant
from perdure.kernel.queue import SWITCH, Queue
from perdure.store.base import Store, switch


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """Whether automatic recovery is paused, since when, by whom and why; who made the last change, why, from where."""

    paused_at: datetime | None
    paused_by: str
    paused_why: str
    changed_at: datetime | None
    who: str
    why: str
    origin: str

    @property
    def paused(self) -> bool:
        """Whether automatic recovery is paused now."""
        return self.paused_at is not None


class Recovery:
    """The switch of automatic recovery, for all workers on the database: ``engine.recovery``.

    While recovery is paused, no worker is ended by others, no lapsed lease is taken over, and no process over its
    deadline is forced to end; such findings are only reported. Ordinary work goes on: timers, retries, new starts.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def state(self) -> RecoveryView:
        """Read whether recovery is paused, since when, by whom and why."""
        return _view(await switch(self.store))

    async def pause(self, *, who: str = "", why: str = "", origin: str = "client") -> RecoveryView:
        """Pause recovery, at once for all workers. Its state shows who paused it first."""
        return _view(await changed(self.store, SWITCH, blocked, validation.sender(who, why, origin)))

    async def resume(self, *, who: str = "", why: str = "", origin: str = "client") -> RecoveryView:
        """Let workers recover by themselves again; the next sweeps find what there is to recover."""
        return _view(await changed(self.store, SWITCH, unblocked, validation.sender(who, why, origin)))


def _view(row: Queue) -> RecoveryView:
    return RecoveryView(
        paused_at=instant(row.blocked_at),
        paused_by=row.blocked_by,
        paused_why=row.blocked_why,
        changed_at=instant(row.changed_at) if row.version else None,
        who=row.who,
        why=row.why,
        origin=row.origin,
    )
