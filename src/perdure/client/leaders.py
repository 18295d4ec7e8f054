"""Leaders as people see and release them: which program leads in which matter, since when and until when."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.leadership import Leadership
from perdure.client.view import instant
from perdure.clock import SECOND, Computer, Duration
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel import leader as rules
from perdure.kernel.leader import Leader
from perdure.kernel.names import check_name
from perdure.loop import Outage
from perdure.store.base import Store
from perdure.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class LeaderView:
    """What the verbs on leaders return. Times are datetimes in UTC.

    ``program`` (host and OS process) leads since ``since``, until ``until`` unless it renews its lease; if ``leads`` is
    false it was the last one that did. ``term`` counts the leaders. ``released`` says that a person has asked this
    leader to stop; ``who``, ``why`` and ``origin`` describe the last time that a person did, at ``changed_at``.
    """

    name: str
    leads: bool
    term: int
    program: str
    since: datetime | None
    until: datetime | None
    released: bool
    changed_at: datetime | None
    who: str
    why: str
    origin: str


class Leaders:
    """The verbs on leaders: ``engine.leaders``. To lead, use ``async with engine.leader(name)``."""

    def __init__(self, store: Store, machine: Computer, outage: Outage, telemetry: Telemetry) -> None:
        self.store = store
        self.machine = machine
        self.outage = outage
        self.counters = telemetry.counters
        self.called_off: dict[str, int] = {}
        self._asking: dict[asyncio.Task[None], Leadership] = {}

    # -- for people ------------------------------------------------------------------------------------------------

    async def list(self) -> builtins.list[LeaderView]:
        """Everything in which a program has ever led, by name."""
        rows, now = await self.store.records(Leader), await self.store.now()
        return [_view(row, now) for row in rows]

    async def state(self, name: str) -> LeaderView:
        """Who leads in this; raises InvalidKey."""
        check_name(name, "the name of the leader")
        return _view(await self.row(name), await self.store.now())

    async def release(self, name: str, *, who: str = "", why: str = "", origin: str = "client") -> LeaderView:
        """Ask the leader to stop, so that another program may lead; raises InvalidKey, and IllegalMove if none leads.

        It stops when it next renews its lease, within a third of that. Its program waits for one lease before it
        leads again. One that does not answer is not waited for: its lease ends by itself.
        """
        check_name(name, "the name of the leader")
        sender = validation.sender(who, why, origin)
        for _ in range(limits.COMMAND_TRIES):
            old, now = await self.row(name), await self.store.now()
            if not old.leads(now):
                raise IllegalMove(f"no program leads in {name} now; `perdure leader ls` shows who does in what")
            said = {"changed_at": now, "who": sender.who, "why": sender.why, "origin": sender.origin}
            new = replace(rules.called_off(old), **said)
            if await self.written(new) == new:
                return _view(new, now)
        raise IllegalMove(f"the leader of {name} kept changing meanwhile; nothing was done, try again")

    # -- for those who lead ----------------------------------------------------------------------------------------

    def ask(
        self, name: str, lease: Duration, timeout: Duration | None, heartbeat_timeout: Duration | None
    ) -> Leadership:
        """See :meth:`Client.leader`."""
        check_name(name, "the name of the leader")
        span = validation.duration(lease, "the lease")
        shortest, longest = limits.LEADER_SHORTEST_SECONDS, limits.LEADER_LONGEST_SECONDS
        if not shortest <= span / SECOND <= longest:
            raise InvalidInput(f"the lease is {span / SECOND:g} s. Give {shortest:g} seconds to {longest:g}.")
        silence = None
        if heartbeat_timeout is not None:
            silence = validation.duration(heartbeat_timeout, "heartbeat_timeout") / SECOND
        return Leadership(self, name, lease=span, timeout=validation.timeout(timeout), heartbeat=silence)

    def begin(self, leadership: Leadership, life: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a leadership live beside its block."""
        task = asyncio.get_running_loop().create_task(life, name=f"perdure leader {leadership.name}")
        self._asking[task] = leadership
        task.add_done_callback(self._asking.pop)
        return task

    async def row(self, name: str) -> Leader:
        """The row of that name; one that is not there yet has the version 0."""
        return _named(name, await self.store.records(Leader))

    async def written(self, row: Leader) -> Leader:
        """Write a row; the answer is the row as it is then, of whoever was quicker."""
        return _named(row.name, await self.store.records(Leader, [row]))

    def stands_back(self, row: Leader, now: int, lease: int) -> float:
        """For how many seconds this program lets others lead, since a person has released its own leadership."""
        if self.called_off.get(row.name) != row.term:
            return 0.0
        return max(0.0, (row.until + lease - now) / SECOND)

    async def close(self) -> None:
        """Lead no more: blocks are cancelled; what they hold is given back if they end soon, and lapses if not."""
        asking = dict(self._asking)
        for leadership in asking.values():
            leadership.lose("its engine was closed")
        if asking:
            _, late = await asyncio.wait(asking, timeout=limits.LEADER_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


def _named(name: str, rows: builtins.list[Leader]) -> Leader:
    return next((row for row in rows if row.name == name), Leader(name))


def _view(row: Leader, now: int) -> LeaderView:
    return LeaderView(
        name=row.name,
        leads=row.leads(now),
        term=row.term,
        program=row.program,
        since=instant(row.since) if row.since else None,
        until=instant(row.until) if row.until else None,
        released=row.released,
        changed_at=instant(row.changed_at) if row.changed_at else None,
        who=row.who,
        why=row.why,
        origin=row.origin,
    )
