"""A view: one process for people, with times as datetimes and payloads as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, overload

from perdure.errors import PerdureError
from perdure.kernel import context
from perdure.kernel.breaker import BREAKER_MARK, Circuit
from perdure.kernel.checkpoint import shown
from perdure.kernel.child import is_task
from perdure.kernel.diagnosis import NO_QUEUES, NextMover, Workers, next_mover
from perdure.kernel.failure import Failure
from perdure.kernel.kind import PLACE
from perdure.kernel.names import id_text
from perdure.kernel.note import Note
from perdure.kernel.notice import ATTRIBUTE, address
from perdure.kernel.outage import PREFIX, OutageState
from perdure.kernel.payload import decode
from perdure.kernel.process import FORMER_KEY, Process, Status
from perdure.kernel.queue import Load, Queue, QueueLoads
from perdure.kernel.stored import under_way
from perdure.store.base import Store

_RESERVED = {ATTRIBUTE, context.ATTRIBUTE, FORMER_KEY}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


@overload
def instant(microseconds: int) -> datetime: ...
@overload
def instant(microseconds: int | None) -> datetime | None: ...
def instant(microseconds: int | None) -> datetime | None:
    """A stored time as an aware datetime in UTC; a time outside the years 1 to 9999 becomes the first or last day."""
    if microseconds is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _FIRST if microseconds < 0 else _LAST


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process as ``status`` and ``list`` show it; times are datetimes in UTC.

    ``mover`` says who moves the process next, see :class:`~perdure.kernel.diagnosis.NextMover`, ``waiting`` why it does
    not move, ``since`` and ``until`` since when and until when. ``events`` counts the events of the current run,
    ``unheard`` the messages that its code has not been given yet, ``deaths`` how often a worker died that held the
    process. ``state`` is what its code has set, ``progress`` the steps under way, ``owner`` the worker that holds it,
    ``reply_to`` the id of the process that gets its notices, ``context`` what came with its start.
    """

    id: str
    kind: str
    key: str | None
    status: Status
    run: int
    mover: NextMover
    waiting: str
    since: datetime | None
    until: datetime | None
    created_at: datetime | None
    changed_at: datetime | None
    deadline: datetime | None
    events: int
    unheard: int
    deaths: int
    input: Any
    result: Any
    error: Failure | None
    state: Any
    progress: Any
    attributes: Any
    code: str
    owner: str | None
    reply_to: str | None = None
    context: Any = None


def _progress(raw: bytes | None) -> dict[str, Any] | None:
    try:
        return None if raw is None else under_way(raw)
    except PerdureError:
        return None


def own_attributes(attributes: Any) -> Any:
    """The attributes that the process was given, without its reply address, its context and its former key."""
    if not isinstance(attributes, dict) or not _RESERVED & attributes.keys():
        return attributes
    return {name: value for name, value in attributes.items() if name not in _RESERVED} or None


def _context(attributes: bytes | None) -> Any:
    text = context.of_attributes(attributes)
    try:
        return context.read(text) or None
    except PerdureError:
        return text


def readable(raw: bytes | None) -> Any:
    """The value of a payload for people; one that is sealed or damaged must not hide the others, and says why."""
    try:
        return None if raw is None else decode(raw)
    except PerdureError as why:
        return {"unreadable": str(why)}


async def views(store: Store, rows: Sequence[Process]) -> list[ProcessView]:
    """The views of these rows, as they are now."""
    now, workers = await store.now(), await known_workers(store)
    queues = await standing(store, rows)
    return [view(row, now, workers, queues) for row in rows]


async def known_workers(store: Store) -> Workers:
    """The workers that live and those that have ended within a day, by their ids."""
    return {worker.id: worker for worker in await store.workers(ended=True)}


async def standing(store: Store, rows: Sequence[Process]) -> QueueLoads:
    """What tells why some of these processes wait: limits of queues and kinds, with their loads, circuits, outages."""
    resting = [row for row in rows if row.status is Status.RUNNING and row.owner is None]
    barred = any(BREAKER_MARK in (row.awaiting or "") for row in resting)
    circuits = tuple(await store.records(Circuit)) if barred else ()
    kept = any(is_task(row.kind) or (row.share != PLACE and not row.reminder) for row in resting)
    queues = tuple(await store.records(Queue)) if kept else ()
    loads = tuple(await store.records(Load)) if queues else ()
    notes = await store.records(Note) if any(not row.reminder for row in resting) else ()
    outages = {note.name.removeprefix(PREFIX): note.read(OutageState) for note in notes if note.name.startswith(PREFIX)}
    return QueueLoads(queues, loads, circuits, outages)


def owner_of(process: Process, workers: Workers) -> str | None:
    """The name of the worker that holds the process, or its id if the worker is not remembered."""
    if process.owner is None:
        return None
    worker = workers.get(process.owner)
    return id_text(process.owner) if worker is None else worker.name


def view(process: Process, now: int, workers: Workers, queues: QueueLoads = NO_QUEUES) -> ProcessView:
    """The view of a row at ``now`` (microseconds by the store's clock); ``workers`` and ``queues`` explain its wait."""
    mover = next_mover(process, now, workers, queues)
    receiver = address(process)
    return ProcessView(
        id=id_text(process.id),
        kind=str(process.kind),
        key=None if process.key is None else str(process.key),
        status=process.status,
        run=process.run,
        mover=mover.who,
        waiting=mover.text,
        since=instant(mover.since),
        until=instant(mover.until),
        created_at=instant(process.created_at),
        changed_at=instant(process.changed_at),
        deadline=instant(process.deadline),
        events=process.events,
        unheard=process.inbox - process.seen,
        deaths=process.deaths + max(process.alone_deaths, 0),
        input=readable(process.input),
        result=readable(process.result),
        error=None if process.error is None else Failure.shown(process.error),
        state=readable(shown(process.state)),
        progress=_progress(process.progress),
        attributes=own_attributes(readable(process.attributes)),
        code=str(process.code),
        owner=owner_of(process, workers),
        reply_to=None if receiver is None else id_text(receiver),
        context=_context(process.attributes),
    )
