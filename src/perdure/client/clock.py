"""The store's time compared with the clock of its machine, and the command that brings the two together."""

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
    """The store's time (``at``), the clock of its machine, and since when and by how much the time is ahead of it.

    While ``mending``, the lead shrinks at half the clock's pace; ``who``, ``why`` and ``origin`` describe that order.
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
    """The store's time, which never runs backward; ``engine.clock`` gives access to it.

    If the machine's clock was ahead for a moment, the time goes on from there at the clock's pace. Its lead shrinks by
    itself, within a hundred times its own length; :meth:`mend` makes that faster.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def state(self) -> ClockView:
        """Read the two times, and how far they are apart."""
        return _view(await self._row())

    async def mend(self, *, who: str = "", why: str = "", origin: str = "client") -> ClockView:
        """Let the time run at half the clock's pace until the two agree; until then timers fire later."""
        return _view(await self._change(True, validation.sender(who, why, origin)))

    async def leave(self, *, who: str = "", why: str = "", origin: str = "client") -> ClockView:
        """Take back the order of :meth:`mend`."""
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
