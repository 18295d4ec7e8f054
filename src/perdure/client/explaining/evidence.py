"""Evidence: all that is read to explain one process. What is too much to be read is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import json

from perdure.client.held import held_by
from perdure.client.view import known_workers, standing
from perdure.errors import PerdureError
from perdure.kernel.child import begun
from perdure.kernel.clock import Clock
from perdure.kernel.diagnosis import Mover, Workers, next_mover
from perdure.kernel.event import RESULTS, Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.fingerprint import Cause, cause_of
from perdure.kernel.hosting import Hosting, hosting
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import Queue, QueueLoads
from perdure.kernel.retry import FailedAttempt, decode_attempt
from perdure.kernel.soundness import Finding, unsound
from perdure.kernel.stored import MALFORMED, first_trouble
from perdure.kernel.worker import WorkerRow
from perdure.limits import LIST_ROWS
from perdure.store.base import Search, Store, switch

CHILDREN = 5
"""So many of the open children of a process are explained with it."""
HOSTS = 20
"""Of so many hosts of a process it is counted what they hold."""
StepPlace = tuple[str, str]


@dataclass
class Evidence:
    """What is known of one process at ``now``: its row, its run, its children, who lives, and how its kin fares.

    ``children`` are some of its ``open_children``: first those that wait for a person, then those that changed longest
    ago. ``alike`` counts processes of its kind with the same trouble, among the newest ``looked_at``; ``held`` counts
    what each of the first live hosts of it holds, a thousand at most. ``tried`` counts the attempts of the step whose
    error has ended it; 0 if they are not known.
    """

    row: Process
    now: int
    workers: Workers
    queues: QueueLoads
    recovery: Queue
    clock: Clock
    events: Sequence[Event]
    unsound: Sequence[Finding] = ()
    children: Sequence[Process] = ()
    open_children: int = 0
    alike: int = 0
    looked_at: int = 0
    held: Mapping[bytes, int] = field(default_factory=dict)
    tried: int = 0

    @cached_property
    def mover(self) -> Mover:
        """Who moves it next."""
        return next_mover(self.row, self.now, self.workers, self.queues)

    @cached_property
    def hosting(self) -> Hosting:
        """Who hosts its kind and version."""
        return hosting(self.row.kind, self.row.code, self.workers.values(), self.now)

    @property
    def owner(self) -> WorkerRow | None:
        """The worker that holds it, if it is remembered."""
        return self.workers.get(self.row.owner or b"")

    @cached_property
    def failure(self) -> Failure | None:
        """What it has failed by, or is held or broken by."""
        return None if self.row.error is None else Failure.shown(self.row.error)

    @cached_property
    def cause(self) -> Cause | None:
        """What it is filed under by ``perdure failures``, if it has failed or is broken."""
        failed = self.row.status in (Status.FAILED, Status.BROKEN)
        return cause_of(self.row, self.failure) if failed and self.failure is not None else None

    @cached_property
    def trying(self) -> tuple[Event, FailedAttempt] | None:
        """The last failed attempt of a step that has no result yet."""
        return last_attempt(self.events)

    def revivals(self) -> list[tuple[Event, Mapping[str, Any]]]:
        """The losses of its workers in this run, with the evidence that was recorded."""
        return [(event, _plain(event.payload)) for event in self.events if event.type is EventType.REVIVED]

    def last(self, *types: EventType) -> Event | None:
        """The last event of one of these types."""
        return next((event for event in reversed(self.events) if event.type in types), None)

    def ran_at(self, death: Event) -> str:
        """Which step ran when a worker died, as exactly as it is known."""
        before = [event for event in self.events if event.number < death.number]
        open: dict[StepPlace, None] = {}
        for event in before:
            if event.type is EventType.ATTEMPT_BEGUN:
                open[event.name, event.place] = None
            elif event.type in RESULTS:
                open.pop((event.name, event.place), None)
        told = _plain(death.payload).get("steps") or [f"{name}:{place}" for name, place in open]
        if told:
            return f"step {', '.join(map(str, told))} ran then"
        done = next((event for event in reversed(before) if event.type in RESULTS), None)
        if done is None:
            return "it had recorded no step by then: its first steps, or its own code, ran"
        return f"what comes behind step {done.name} ran (event {done.number} is its result)"


def last_attempt(events: Sequence[Event]) -> tuple[Event, FailedAttempt] | None:
    """The last failed attempt of a step that has no result yet; None if there is none that can be read."""
    answered: set[StepPlace] = set()
    for event in reversed(events):
        if event.type in RESULTS:
            answered.add((event.name, event.place))
        elif event.type is EventType.ATTEMPT_FAILED and (event.name, event.place) not in answered:
            try:
                return event, decode_attempt(event.payload or b"")
            except PerdureError:
                return None
    return None


async def gathered(store: Store, row: Process) -> Evidence:
    """Read all that may explain this process, as it is now."""
    workers, now = await known_workers(store), await store.now()
    (clock,) = await store.records(Clock)
    events = await store.history(row.id, row.run, limit=row.events) if row.events else []
    found = Evidence(row, now, workers, await standing(store, [row]), await switch(store), clock, events)
    if not row.final:
        found.unsound = await _unsound(store, row, events)
        found.children, found.open_children = await _children(store, events)
    if row.status is Status.RUNNING and row.owner is None and (row.due_at or now) <= now:
        found.held = {one.id: await held_by(store, one) for one in found.hosting.alive[:HOSTS]}
    found.tried = await _attempts(store, found)
    await _count_alike(store, found)
    return found


async def _attempts(store: Store, found: Evidence) -> int:
    """How often the step was tried whose error has ended the process; 0 if that cannot be known."""
    step = "" if found.failure is None else found.failure.step
    for event in reversed(found.events):
        if event.type is EventType.STEP_FAILED and event.name == step:
            payload = event.payload
            if payload is None and event.message is not None:  # a queued step's answer
                letters = await store.messages([(found.row.id, event.message - 1)], most=1)
                payload = next((one.payload for one in letters if one.number == event.message), None)
            try:
                return Failure.decode(payload or b"").attempts
            except PerdureError:
                break
    return 0


async def _unsound(store: Store, row: Process, events: Sequence[Event]) -> Sequence[Finding]:
    """The laws that its record breaks; nothing if it moved while it was read, or cannot be opened here."""
    messages = await store.messages([(row.id, 0)]) if row.inbox else []
    fresh = await store.search(Search(ids=(row.id,)))
    still = fresh and (fresh[0].version, fresh[0].inbox, fresh[0].run) == (row.version, row.inbox, row.run)
    if not still or first_trouble(event.payload for event in events):
        return ()
    return unsound(row, events, messages, await store.now())


async def _children(store: Store, events: Sequence[Event]) -> tuple[list[Process], int]:
    """Some of the children that have neither answered nor ended, the most doubtful first; and how many there are."""
    answered = {(event.name, event.place) for event in events if event.message is not None}
    ids = list(_open_ids(events, answered))
    kept: list[Process] = []
    number = 0
    for first in range(0, len(ids), LIST_ROWS):
        page = await store.search(Search(ids=tuple(ids[first : first + LIST_ROWS]), limit=LIST_ROWS))
        unfinished = [row for row in page if not row.final]
        number += len(unfinished)
        kept = sorted([*kept, *unfinished], key=_doubtful)[:CHILDREN]
    return kept, number


def _doubtful(row: Process) -> tuple[bool, bool, int]:
    return row.status is Status.RUNNING, row.owner is not None, row.changed_at


def _open_ids(events: Sequence[Event], answered: set[StepPlace]) -> Iterator[bytes]:
    for event in events:
        if event.type is EventType.CHILD_STARTED and (event.name, event.place) not in answered:
            try:
                yield begun(event).id_bytes
            except PerdureError:
                continue


async def _count_alike(store: Store, found: Evidence) -> None:
    """How many of the newest processes of its kind have the same trouble: failed alike, or retry the same step."""
    row = found.row
    if found.cause is not None:
        page = await store.search(Search(kind=row.kind, statuses=(Status.FAILED, Status.BROKEN), limit=LIST_ROWS))
        causes = Counter(cause_of(one, Failure.shown(one.error)) for one in page if one.error is not None)
        found.alike, found.looked_at = causes[found.cause], len(page)
    elif found.trying is not None and row.status is Status.RUNNING:
        waits = f"step {found.trying[0].name}"
        page = await store.search(Search(kind=row.kind, statuses=(Status.RUNNING,), limit=LIST_ROWS))
        at_rest = (one for one in page if one.owner is None and not one.reminder)
        found.alike = sum(waits in (one.awaiting or "").split(", ") for one in at_rest)
        found.looked_at = len(page)


def _plain(payload: bytes | None) -> Mapping[str, Any]:
    try:
        told = json.decode(payload or b"{}")
    except MALFORMED:
        return {}
    return told if isinstance(told, dict) else {}


def called(row: Process) -> str:
    """A process for people: kind and key, or kind and id."""
    return f"{row.kind} {row.key or id_text(row.id)}"
