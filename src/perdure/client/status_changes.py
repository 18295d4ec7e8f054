"""Status changes: from which status to which a process has come, when, by whom and why, as its events say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.client.parts import ClientParts
from perdure.client.view import instant
from perdure.errors import PerdureError
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.soundness import IMPLIED, fold
from perdure.kernel.stored import reader
from perdure.kernel.transition import Sender
from perdure.limits import LIST_ROWS, STATUS_RECORDS

_TYPES = tuple(IMPLIED)
_sender = reader(Sender, "who has given a command")


@dataclass(frozen=True, slots=True)
class StatusChange:
    """One change of status: ``was`` is None at the beginning, and if the run before is no longer kept.

    It was made in ``run`` by the event of that ``number`` (0: the start). ``who`` and ``origin`` are those of a
    command, empty if the process's own code or the engine has made the change. ``at`` is in UTC.
    """

    run: int
    number: int
    at: datetime | None
    was: Status | None
    status: Status
    who: str = ""
    why: str = ""
    origin: str = ""


async def status_changes(parts: ClientParts, id: bytes) -> list[StatusChange]:
    """The changes in the last runs, STATUS_RECORDS at most, in their order; raises ProcessNotFound."""
    row = await parts.row(id)
    first = max(1, row.run - STATUS_RECORDS + 1)
    runs = []
    for number in range(first, row.run + 1):
        runs.append((number, await _events(parts, id, number)))
    return list(changes(row, runs))


async def _events(parts: ClientParts, id: bytes, run: int) -> list[Event]:
    """The events of one run that may change the status."""
    found: list[Event] = []
    while True:
        last = found[-1].number if found else 0
        page = await parts.store.history(id, run, after=last, limit=LIST_ROWS, types=_TYPES)
        found += page
        if len(page) < LIST_ROWS:
            return found


def changes(row: Process, runs: Iterable[tuple[int, Sequence[Event]]]) -> Iterable[StatusChange]:
    """The changes that these events of these runs tell of, one after another."""
    status: Status | None = None
    for run, events in runs:
        if run == 1:
            status = Status.RUNNING
            yield StatusChange(1, 0, instant(row.created_at), None, status, why="started")
        elif not events:  # it was removed when its retention was over
            status = None
        for event in events:
            after = fold((event,)).status
            if after is not status:
                who = _by(event)
                yield StatusChange(run, event.number, instant(event.at), status, after, who.who, who.why, who.origin)
            status = after


def _by(event: Event) -> Sender:
    """Who has made the change, and why, as far as it is recorded and can be read here."""
    raw = event.payload or b"{}"
    try:
        if event.type is EventType.RUN_OPENED:
            opening = opening_of((event,))
            told = opening.sender
            return Sender(told.get("who", ""), told.get("why", "") or opening.done, told.get("origin", ""))
        if event.type is EventType.REVIVED:
            return Sender(why="a worker died while it alone was held there")
        found = _sender(raw)
    except PerdureError:
        return Sender()
    if found.who or found.origin:
        return found
    failure = Failure.shown(raw) if event.payload else None
    if failure is None or not failure.type:
        return found
    return Sender(why=f"{failure.type}: {failure.message}".rstrip(": "))
