"""Soundness: the laws of the design as pure checks of one process's record, each under the law's own name.

The same names stand in the schema as constraints and in the simulator as invariants. A check reads the row, the events
of its run, all its messages and the time, and yields a sentence for each violation. A finding is one violation, for
people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from msgspec import Struct

from perdure.clock import SECOND
from perdure.errors import PerdureError
from perdure.kernel.event import ANSWERS, DELIVERED, RESULTS, Event, EventType
from perdure.kernel.message import LETTERS, Message
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.stored import reader
from perdure.limits import ALONE_DEATHS


class Finding(Struct, frozen=True, gc=False):
    """One finding: the law or check it belongs to, the process (or worker) it concerns, and what was seen."""

    law: str
    subject: bytes
    text: str


CLOCK_SLACK = SECOND
"""How far a turn's time, which a worker carries on, may be ahead of the store's (microseconds)."""

IMPLIED: dict[EventType, Status] = {
    EventType.REVIVED: Status.RUNNING,
    EventType.RUN_OPENED: Status.RUNNING,
    EventType.RESUMED: Status.RUNNING,
    EventType.HELD: Status.HELD,
    EventType.BROKEN: Status.BROKEN,
    EventType.COMPLETED: Status.COMPLETED,
    EventType.FAILED: Status.FAILED,
    EventType.EXPIRED: Status.FAILED,
    EventType.GIVEN_UP: Status.FAILED,
    EventType.REPAIRED: Status.RUNNING,
    EventType.CANCELLED: Status.CANCELLED,
    EventType.TERMINATED: Status.CANCELLED,
}
"""The status that a process has after an event; the other events change none."""

LAST = frozenset(type for type, status in IMPLIED.items() if status in FINAL)
"""The events that end a run: nothing may follow them but the release of the key, and another version for a retry."""
AFTER_THE_END = frozenset({EventType.KEY_RELEASED, EventType.VERSION_MOVED})

_RECORDED_WITH_SENDER = frozenset(
    {
        EventType.RUN_OPENED, EventType.HELD, EventType.RESUMED, EventType.SET_BY_HAND, EventType.SKIPPED,
        EventType.DEADLINE_SET, EventType.TERMINATED, EventType.GIVEN_UP,
        EventType.REPAIRED, EventType.KEY_RELEASED, EventType.FIELDS_EDITED, EventType.VERSION_MOVED,
        EventType.PRIORITY_SET, EventType.ATTRIBUTES_EDITED,
    }
)  # fmt: skip


class ProcessRecord(Struct, frozen=True):
    """All that is stored about one process: its row, the events of its run, every message sent to it."""

    process: Process
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    now: int


class _Evidence(Struct):
    alone_deaths: int = 0


_evidence = reader(_Evidence, "the evidence of a death")


class Folded(Struct, frozen=True):
    """What a history implies about its row: the status, how many events, the highest message received."""

    status: Status
    events: int
    seen: int


def fold(events: Sequence[Event]) -> Folded:
    """What the row must say after these events of one run."""
    status = Status.RUNNING
    seen = _seen_before(events)
    for event in events:
        status = IMPLIED.get(event.type, status)
        if event.type is EventType.REVIVED and _alone_deaths(event) >= ALONE_DEATHS:
            status = Status.BROKEN
        seen = max(seen, event.message or 0)
    return Folded(status, len(events), seen)


def _seen_before(events: Sequence[Event]) -> int:
    try:
        return opening_of(events).seen
    except PerdureError:
        return 0


def _alone_deaths(event: Event) -> int:
    try:
        return _evidence(event.payload or b"{}").alone_deaths
    except PerdureError:
        return 0


def unsound(process: Process, events: Sequence[Event], messages: Sequence[Message], now: int) -> list[Finding]:
    """Every law that the record of ``process`` breaks. ``events`` are those of its run, ``messages`` are all.

    ``now`` is the store's time; the three must have been read at one state of the row.
    """
    record = ProcessRecord(
        process,
        tuple(sorted(events, key=lambda event: event.number)),
        tuple(sorted(messages, key=lambda message: message.number)),
        now,
    )
    return [Finding(law.__name__, process.id, text) for law in LAWS for text in law(record)]


def unfinished_is_due(record: ProcessRecord) -> Iterator[str]:
    """Law 1: a process has a due time exactly while it is unfinished."""
    process = record.process
    if process.final and process.due_at is not None:
        yield f"it is {process.status} and still has a due time"
    if not process.final and process.due_at is None:
        yield f"it is {process.status} and nobody will ever look at it: it has no due time"
    if process.status in (Status.HELD, Status.BROKEN) and not process.reminder:
        yield f"it is {process.status} and its due time is not marked as a reminder: no sweep would find it"


def one_owner(record: ProcessRecord) -> Iterator[str]:
    """Law 2: only a running row has an owner, and tokens and versions never fall along a history."""
    process = record.process
    if process.owner is not None and process.status is not Status.RUNNING:
        yield f"it is {process.status} and has an owner"
    if process.owner is not None and process.reminder:
        yield "it has an owner, and its lease end is marked as a reminder"
    if process.token < 0 or process.version < 0:
        yield f"its token {process.token} or version {process.version} is negative"
    for one, other in pairwise(record.events):
        if other.token < one.token or other.version < one.version:
            yield (
                f"event {other.number} was written by an older owner (token {other.token}, version {other.version}) "
                f"than event {one.number} before it (token {one.token}, version {one.version})"
            )
        if other.version == one.version and other.token != one.token:
            yield f"events {one.number} and {other.number} have one version, {one.version}, and two tokens"
    for event in record.events:
        if event.token > process.token or event.version > process.version:
            yield (
                f"event {event.number} has token {event.token} and version {event.version}, "
                f"the row only {process.token} and {process.version}"
            )


def one_transaction(record: ProcessRecord) -> Iterator[str]:
    """Law 3: the row, its events and its messages tell one story, since they were written together."""
    process = record.process
    folded = fold(record.events)
    if folded.status is not process.status:
        yield f"the row says {process.status}, its history says {folded.status}"
    if folded.seen > process.seen:
        yield f"the row has seen message {process.seen}, its history message {folded.seen}"
    received = {event.number: event.message for event in record.events if event.message is not None}
    consumed = {message.number for message in record.messages if message.consumed_by is not None}
    for message in record.messages:
        if message.consumed_run == process.run and received.get(message.consumed_by or 0) != message.number:
            yield f"message {message.number} names event {message.consumed_by}, which does not record it"
        if message.number > process.seen and message.number in consumed:
            yield f"message {message.number} is consumed, but the row has seen only {process.seen}"
        if message.number <= process.seen and message.number not in consumed and message.type not in LETTERS:
            yield f"message {message.number} ({message.type.name.lower()}) was seen, and no event records it"
    for number, taken in received.items():
        if taken not in consumed:
            yield f"event {number} records message {taken}, which is not there or not consumed"
    revivals = sum(event.type is EventType.REVIVED for event in record.events)
    alone = max(process.alone_deaths, 0)
    if process.deaths + alone > revivals:
        yield f"it counts {process.deaths} + {alone} deaths and records only {revivals} revivals"


def history_is_gapless(record: ProcessRecord) -> Iterator[str]:
    """Law 4: events are numbered 1, 2, 3 … and the row counts them."""
    process = record.process
    for place, event in enumerate(record.events, 1):
        if event.number != place:
            yield f"event {place} of run {process.run} is missing: number {event.number} stands in its place"
            break
    if process.events != len(record.events):
        yield f"the row counts {process.events} events, its history has {len(record.events)}"


def result_once(record: ProcessRecord) -> Iterator[str]:
    """Law 5: a step's result and a timer are recorded at most once per run, a message is consumed at most once."""
    results = Counter((event.name, event.place) for event in record.events if event.type in RESULTS)
    for (name, place), times in results.items():
        if times > 1:
            yield f"step {name!r} at {place!r} has {times} results"
    timers = Counter(event.place for event in record.events if event.type is EventType.TIMER_FIRED)
    for place, times in timers.items():
        if times > 1:
            yield f"the timer at {place!r} fired {times} times"
    answers = Counter(event.name for event in record.events if event.type in ANSWERS)
    for name, times in answers.items():
        if times > 1:
            yield f"the call {name} has {times} answers"
    taken = Counter(event.message for event in record.events if event.message is not None)
    for number, times in taken.items():
        if times > 1:
            yield f"message {number} was received {times} times"
    for message in record.messages:
        if (message.consumed_run is None) != (message.consumed_by is None):
            yield f"message {message.number} is half consumed"


def nothing_unheard(record: ProcessRecord) -> Iterator[str]:
    """Law 6: a running process that nobody owns and that has unseen messages is due now."""
    process = record.process
    if process.inbox <= process.seen or process.status is not Status.RUNNING or process.owner is not None:
        return
    due = process.due_at is not None and process.due_at <= max(record.now, process.changed_at)
    if process.reminder or not due:
        yield f"messages {process.seen + 1} to {process.inbox} are unheard, and the process is not due"


def no_early_timer(record: ProcessRecord) -> Iterator[str]:
    """Law 7: the times of turns never run backward, nor ahead of the store's clock."""
    process = record.process
    latest = max(record.now, process.changed_at) + CLOCK_SLACK
    turns = [event for event in record.events if event.type in DELIVERED]
    for event in turns:
        if event.at > latest:
            yield f"event {event.number} is of {event.at}, which has not come yet: it is {record.now}"
        if process.opened_at is not None and event.at < process.opened_at:
            yield f"event {event.number} is older than the process's first turn"
    for one, other in pairwise(turns):
        if other.turn < one.turn or other.at < one.at:
            yield f"event {other.number} belongs to an earlier turn than event {one.number} before it"
        if other.turn == one.turn and other.at != one.at:
            yield f"events {one.number} and {other.number} are of one turn and of two times"


def accepted_is_kept(record: ProcessRecord) -> Iterator[str]:
    """Law 8: every message that was ever accepted is there, numbered 1, 2, 3 … as the row counts them.

    Messages heard in runs before the last one may have been pruned with those runs.
    """
    process = record.process
    numbers = [message.number for message in record.messages]
    there = set(numbers)
    pruned = process.seen if process.run > 2 else 0
    # Lazily, and ten at most: a count that no inbox can have must not fill the memory of a worker.
    missing = list(islice((one for one in range(pruned + 1, process.inbox + 1) if one not in there), 10))
    odd = len(numbers) != len(there) or any(not 1 <= one <= process.inbox for one in there)
    if missing or odd:
        yield f"{process.inbox} messages were accepted, {len(numbers)} are there; missing: {missing}"
    if not 0 <= process.seen <= process.inbox:
        yield f"it has seen message {process.seen} of {process.inbox}"
    for message in record.messages:
        if message.process != process.id:
            yield f"message {message.number} is addressed to another process"


def operators_use_the_front_door(record: ProcessRecord) -> Iterator[str]:
    """Law 9: a person's command is recorded with who, why and origin."""
    for event in record.events:
        if event.type in _RECORDED_WITH_SENDER and event.payload is None:
            yield f"event {event.number} ({event.type.name.lower()}) does not say who asked for it"


def finished_is_final(record: ProcessRecord) -> Iterator[str]:
    """Law 10: nothing happens after the end of a run, and an ended process is owned and awaited by nobody."""
    process = record.process
    told = [event for event in record.events if event.type not in AFTER_THE_END]
    for event in told[:-1]:
        if event.type in LAST:
            yield f"event {event.number} ended the run ({event.type.name.lower()}), and more events follow"
    if process.final and process.reminder:
        yield f"it is {process.status} and still has a reminder"
    if (process.result is not None) != (process.status is Status.COMPLETED):
        yield f"it is {process.status} and has {'a' if process.result is not None else 'no'} result"
    if process.error is None and process.status in (Status.FAILED, Status.BROKEN):
        yield f"it is {process.status} and does not say why"


RecordLaw = Callable[[ProcessRecord], Iterator[str]]

LAWS: tuple[RecordLaw, ...] = (
    unfinished_is_due,
    one_owner,
    one_transaction,
    history_is_gapless,
    result_once,
    nothing_unheard,
    no_early_timer,
    accepted_is_kept,
    operators_use_the_front_door,
    finished_is_final,
)
