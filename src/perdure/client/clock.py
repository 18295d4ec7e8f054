"""The store's time as people see it beside the clock of its machine, and the order to bring the two into step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.view import instant
from perdure.clock import SECOND
from perdure.errors import IllegalMove
from perdure.kernel.clock import Clock
from perdure.kernel.transition import Sender
from perdure.store.base import Store


@dataclass(frozen=True, slots=True)
class ClockView:
    """The store's time (``at``), what its machine's clock shows, and how many seconds the first is ahead, since when.

    While ``mending`` that shrinks at half the clock's pace; ``who``, ``why`` and ``origin`` are of the order to do so.
    """

    at: datetime
    machine_at: datetime
    ahead_seconds: float
    ahead_since: datetime | None
    mending: bool
    changed_at: datetime | None
    who: str
    why: str
    origin: str


class Timekeeping:
    """The store's time, which no clock moves backward. ``engine.clock`` has it.

    Where the clock of the machine was ahead for a moment, the time goes on from there at the clock's pace. It comes
    back into step by itself, in a hundred times as long as it was ahead; :meth:`mend` has it do so sooner.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def state(self) -> ClockView:
        """The two times, and how far they are apart."""
        return _view(await self._row())

    async def mend(self, *, who: str = "", why: str = "", origin: str = "client") -> ClockView:
        """Let the time run at half the clock's pace until the two are in step: timers ring later meanwhile."""
        return _view(await self._change(True, validation.sender(who, why, origin)))

    async def leave(self, *, who: str = "", why: str = "", origin: str = "client") -> ClockView:
        """Take the order of :meth:`mend` back."""
        return _view(await self._change(False, validation.sender(who, why, origin)))

    async def _row(self) -> Clock:
        (row,) = await self.store.records(Clock)
        return row

    async def _change(self, mending: bool, sender: Sender) -> Clock:
        for _ in range(limits.COMMAND_TRIES):
            old = await self._row()
            said = {"changed_at": old.at, "who": sender.who, "why": sender.why, "origin": sender.origin}
            (row,) = await self.store.records(Clock, [replace(old, version=old.version + 1, mending=mending, **said)])
            if row.version == old.version + 1 and (row.changed_at, row.who, row.why) == (
                old.at,
                sender.who,
                sender.why,
            ):
                return row
        raise IllegalMove("the clock's row kept changing meanwhile; nothing was done, try again")


def _view(row: Clock) -> ClockView:
    at, machine_at = instant(row.at), instant(row.machine_at)
    assert at is not None and machine_at is not None
    return ClockView(
        at=at,
        machine_at=machine_at,
        ahead_seconds=row.lead / SECOND,
        ahead_since=instant(row.lead_since),
        mending=row.mending,
        changed_at=instant(row.changed_at) if row.version else None,
        who=row.who,
        why=row.why,
        origin=row.origin,
    )
