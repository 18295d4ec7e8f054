"""Outages as people see, begin and end them: which kinds of process are held, since when, and why."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from perdure import limits
from perdure.client import validation
from perdure.client.view import instant
from perdure.errors import IllegalMove
from perdure.kernel.names import check_name
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX, OutageChange, OutageState
from perdure.store.base import Store

StateChange = Callable[[OutageState, int], OutageState]
"""Makes the new state of a kind from the old one, at the store's time."""


@dataclass(frozen=True, slots=True)
class OutageView:
    """How a kind of process stands. Times are datetimes in UTC.

    ``held`` says whether there is an outage, ``since`` when and for what ``reason``; ``fingerprint`` is the cause that
    `perdure failures` shows, empty if a person began it. From ``until`` on canaries are let through; None: none is
    before a person ends it. ``failing`` is how many processes have failed alike lately, while there is none.
    ``changes`` are the last ones, each with its time, its state, its reason and who made it.
    """

    kind: str
    held: bool
    since: datetime | None
    until: datetime | None
    reason: str
    fingerprint: str
    failing: int
    changes: tuple[tuple[datetime | None, str, str, str], ...]


class Outages:
    """The verbs on outages of kinds: ``engine.outages``. A queue is named ``"@bank"``.

    Workers that have rules hear of a change within a second, others within ten.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    async def list(self) -> builtins.list[OutageView]:
        """Every kind that has failures counted, or has ever had an outage, by name."""
        return [_view(note) for note in await self.store.records(Note) if note.name.startswith(PREFIX)]

    async def begin(self, kind: str, *, who: str = "", why: str = "", origin: str = "client") -> OutageView:
        """Hold the kind until a person ends it: its processes wait, and no canary is let through. Raises InvalidKey."""
        sender = validation.sender(who, why, origin)
        return await self._change(kind, lambda state, now: state.begun_by(sender.who, sender.why, sender.origin, now))

    async def end(self, kind: str, *, who: str = "", why: str = "", origin: str = "client") -> OutageView:
        """Let the kind go, few processes at first; from now on failures are counted anew. Raises InvalidKey."""
        sender = validation.sender(who, why, origin)
        return await self._change(kind, lambda state, now: state.ended_by(sender.who, sender.why, sender.origin, now))

    async def _change(self, kind: str, change: StateChange) -> OutageView:
        """Read a state, change it and write it; if it has changed meanwhile, try again. Raises IllegalMove."""
        name = PREFIX + check_name(kind, "the kind")
        for _ in range(limits.COMMAND_TRIES):
            known = await self.store.records(Note)
            now = await self.store.now()
            note = next((one for one in known if one.name == name), Note(name))
            new = note.next(change(note.read(OutageState), now), now)
            if new in await self.store.records(Note, [new]):
                return _view(new)
        raise IllegalMove(f"the outage of {kind} kept changing meanwhile; nothing was done, try again")


def _view(note: Note) -> OutageView:
    state = note.read(OutageState)
    circuit = state.circuit
    return OutageView(
        kind=note.name.removeprefix(PREFIX),
        held=state.held,
        since=instant(circuit.since) if circuit.since else None,
        until=instant(circuit.until),
        reason=circuit.reason,
        fingerprint=state.fingerprint,
        failing=max((count.number for count in state.counts.values()), default=0),
        changes=tuple(map(_change, state.changes)),
    )


def _change(change: OutageChange) -> tuple[datetime | None, str, str, str]:
    return instant(change.at), change.state, change.reason, change.who
