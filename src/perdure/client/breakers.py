"""Circuit breakers as people see and set them: whether attempts at a dependency are made, since when, and why."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.view import instant
from perdure.errors import IllegalMove
from perdure.kernel import breaker as rules
from perdure.kernel.breaker import Circuit
from perdure.kernel.names import check_name
from perdure.kernel.transition import Sender
from perdure.logs import logger
from perdure.store.base import Store

log = logger("breaker")

CircuitChange = Callable[[Circuit, int], Circuit]
"""Makes a circuit's new row from the old one, at the store's time."""


@dataclass(frozen=True, slots=True)
class BreakerView:
    """What the verbs on breakers return. Times are datetimes in UTC.

    ``state`` is closed (attempts are made), open (none is made) or half-open (only probes are made), ``since`` when
    and for what ``reason``. An open breaker lets a probe through from ``until`` on; the probe of a half-open one is
    given up then. ``forced`` says that a person keeps it so. ``failures`` are those counted while it is closed,
    ``opened`` is how often it has opened in a row. ``who``, ``why`` and ``origin`` describe the last change by a
    person, made at ``changed_at``.
    """

    name: str
    state: str
    since: datetime | None
    until: datetime | None
    reason: str
    forced: bool
    failures: int
    opened: int
    changed_at: datetime | None
    who: str
    why: str
    origin: str


class Breakers:
    """The verbs on circuit breakers: ``engine.breakers``. A breaker has a row once it has counted a failure.

    Workers hear of a change within a second. Steps that wait for a breaker ask again within a minute after that.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def list(self) -> builtins.list[BreakerView]:
        """Every breaker that has ever counted a failure or was changed by a person, by name."""
        return [_view(circuit) for circuit in await self.store.records(Circuit)]

    async def state(self, name: str) -> BreakerView:
        """Read one breaker; one of which nothing is known is closed. Raises InvalidKey."""
        check_name(name, "the name of the breaker")
        return _view(await _read(self.store, name))

    async def open(self, name: str, *, who: str = "", why: str = "", origin: str = "client") -> BreakerView:
        """Keep the breaker open until it is closed or reset: no attempt is made, and no probe. Raises InvalidKey."""
        return await self._change(name, rules.forced_open, validation.sender(who, why, origin))

    async def close(self, name: str, *, who: str = "", why: str = "", origin: str = "client") -> BreakerView:
        """Keep the breaker closed, whatever fails, until it is opened or reset. Raises InvalidKey."""
        return await self._change(name, rules.forced_closed, validation.sender(who, why, origin))

    async def reset(self, name: str, *, who: str = "", why: str = "", origin: str = "client") -> BreakerView:
        """Close the breaker with nothing counted; from now on failures open it by themselves. Raises InvalidKey."""
        return await self._change(name, rules.cleared, validation.sender(who, why, origin))

    async def _change(self, name: str, change: CircuitChange, sender: Sender) -> BreakerView:
        """Read a circuit, change it and write it; if it has changed meanwhile, try again. Raises IllegalMove."""
        check_name(name, "the name of the breaker")
        said = {"who": sender.who, "why": sender.why, "origin": sender.origin}
        for _ in range(limits.COMMAND_TRIES):
            old, now = await _read(self.store, name), await self.store.now()
            new = replace(change(old, now), version=old.version + 1, worker="", changed_at=now, **said)
            if new in await self.store.records(Circuit, [new]):
                log.info("%s; it was %s", new.text(), old.state, extra=new.fields(old))
                return _view(new)
        raise IllegalMove(f"breaker {name} kept changing meanwhile; nothing was done, try again")


async def _read(store: Store, name: str) -> Circuit:
    return next((circuit for circuit in await store.records(Circuit) if circuit.name == name), Circuit(name))


def _view(circuit: Circuit) -> BreakerView:
    return BreakerView(
        name=circuit.name,
        state=circuit.state,
        since=instant(circuit.since) if circuit.since else None,
        until=instant(circuit.until),
        reason=circuit.reason,
        forced=circuit.forced,
        failures=circuit.failures,
        opened=circuit.opened,
        changed_at=instant(circuit.changed_at) if circuit.changed_at else None,
        who=circuit.who,
        why=circuit.why,
        origin=circuit.origin,
    )
