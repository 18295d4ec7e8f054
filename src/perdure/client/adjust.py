"""Adjustments of a process by a person: another version of its code, another priority, another deadline."""

from __future__ import annotations

from datetime import datetime

from perdure.authoring.start import checked_priority
from perdure.client import decision, validation
from perdure.client.deadline import deadline as set_at
from perdure.client.orders import Orders
from perdure.client.unserved import hosted_now
from perdure.clock import Duration


class Adjustments(Orders):
    """The part of a handle that changes how a process goes on, and nothing that it has recorded.

    Every verb records ``who`` asks, ``why``, and from where (``origin``). All raise ProcessNotFound, and IllegalMove if
    the process kept changing.
    """

    __slots__ = ()

    async def move(
        self, version: str, *, force: bool = False, who: str = "", why: str = "", origin: str = "client"
    ) -> None:
        """Move a process to another version of its workflow's code: ``handle.move("2")``.

        One that runs is taken from its worker and replayed with the other code at once; if its history does not fit, it
        becomes broken, and can be moved back. One that is delayed, held, broken or failed stays so, and goes on with
        the other code later. Raises IllegalMove if no live worker hosts the version, unless with ``force``; for a
        process that has completed or was cancelled, a queued step, and the version that it has; InvalidInput for a
        wrong one.
        """
        sender, version = validation.sender(who, why, origin), validation.version(version)
        validation.outside_a_turn()
        hosted = None if force else await hosted_now(self._parts.store)
        await self._order(decision.move(sender, version, hosted))

    async def set_priority(self, priority: int, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Give a process another priority, from 0 (claimed first) to 9.

        A worker that holds it loses it, and steps in flight begin again, under their keys. Raises IllegalMove if the
        process has ended, or has this priority; InvalidInput for a wrong one.
        """
        await self._order(decision.set_priority(validation.sender(who, why, origin), checked_priority(priority)))

    async def set_deadline(
        self, deadline: Duration | datetime | None, *, who: str = "", why: str = "", origin: str = "client"
    ) -> None:
        """Give a process another deadline: seconds or a timedelta from now, a datetime with its zone, or None for none.

        At its deadline a process that has not ended fails. A worker that holds it now loses it, and steps in flight
        begin again, under their keys. Raises IllegalMove if the process has ended, or the time has passed; InvalidInput
        for what is no time.
        """
        sender = validation.sender(who, why, origin)
        await self._order(decision.set_deadline(sender, set_at(deadline)))
