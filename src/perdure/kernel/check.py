"""Checks: each law of the record as a named check, which detects, explains and, where that is safe, mends.

To add a check, write a function that reads a :class:`Record` and yields a sentence for each fault, and list it in
:data:`CHECKS`. A fix is given only where the right state of the row follows from what is stored: no fix guesses a
result, and none runs code again that a damaged history might have run already. It is one commit, fenced like every
other one, or a message that is known by its id if it is there already. What it would write is its dry run.

A test plants the fault of every check (``tests/checks/test_plants.py``), and fails for a check without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.clock import microseconds
from perdure.errors import InvalidInput, PerdureError
from perdure.kernel import child, integrity, soundness, transition
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text, near
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.soundness import Finding, ProcessRecord
from perdure.kernel.stored import MALFORMED, first_trouble
from perdure.limits import IDLE_CHECK_JITTER, IDLE_CHECK_SECONDS

TEXTS = 3
"""So many sentences of one check about one process are told."""
FARTHEST_REMINDER = microseconds(2 * IDLE_CHECK_SECONDS * (1 + IDLE_CHECK_JITTER))
"""No reminder is set for later than half of that (microseconds)."""


class Record(ProcessRecord, frozen=True):
    """All that is stored about one process, and what is known of those with whom it has to do.

    ``kin`` are the rows of its parent and of the children that it waits for, by their ids, as far as they are there;
    ``workers`` the ids of all incarnations that the store knows, living or ended.
    """

    kin: Mapping[bytes, Process] = {}
    workers: Collection[bytes] = frozenset()


class FixOrder(Struct, frozen=True):
    """An order to mend: by whom, at which time of the store, and when an idle row is next looked at (microseconds)."""

    who: str
    now: int
    idle_at: int


class Mend(Struct, frozen=True):
    """How a fault would be mended, for people, and what is written for it: one commit, or messages."""

    text: str
    commit: Commit | None = None
    sends: tuple[Message, ...] = ()


Detect = Callable[[Record], Iterator[str]]
Fix = Callable[[Record, str, FixOrder], Mend | None]


class Check(Struct, frozen=True):
    """One named check: what must hold, how a fault is detected, and how it is mended, if that is safe.

    ``fix`` gets the record, the sentence of what was found and the order; it answers None where nothing safe is known.
    ``fixes`` says what it does, or what a person can do instead.
    """

    name: str
    says: str
    detect: Detect
    fixes: str
    fix: Fix | None = None


# -- what the laws do not say --------------------------------------------------------------------------------------


def record_is_readable(record: Record) -> Iterator[str]:
    """Everything that is stored about a process can be read."""
    process = record.process
    if trouble := integrity.unreadable_claim(process, record.events, record.messages):
        yield str(trouble)
    for name, raw in (("attributes", process.attributes), ("progress", process.progress)):
        if raw is not None and not _is_object(raw):
            yield f"its column {name} holds no JSON object: {raw[:100]!r}"
    try:
        opening_of(record.events)
    except PerdureError as error:
        yield str(error)


def owner_is_known(record: Record) -> Iterator[str]:
    """The owner of a process is a worker that lives or has lived: else no death of a worker would ever free it."""
    process = record.process
    if process.owner is not None and process.owner not in record.workers:
        yield f"worker {id_text(process.owner)} owns it, and no worker of that id has ever been here"


def reminder_is_near(record: Record) -> Iterator[str]:
    """A process that waits for nothing timed is looked at again within about a day."""
    process = record.process
    if process.reminder and process.due_at is not None and process.due_at > record.now + FARTHEST_REMINDER:
        days = (process.due_at - record.now) // microseconds(24 * 3600)
        yield f"it is looked at again in {days:,} days only: a reminder comes after a day"


def child_is_there(record: Record) -> Iterator[str]:
    """A process that waits for a child or a queued step waits for something that is there."""
    for event, id in _waited_for(record):
        if id not in record.kin:
            what = f"queued step {event.name!r}" if child.is_task(event.name) else f"child {event.name!r}"
            yield f"it waits for {what} ({id_text(id)}), which is not there, and whose outcome has never come"


def parent_is_told(record: Record) -> Iterator[str]:
    """The outcome of a child that has ended is in the inbox of its parent."""
    for event, id in _waited_for(record):
        if id in record.kin and record.kin[id].final:
            status = record.kin[id].status
            yield f"child {event.name!r} ({id_text(id)}) is {status}, and its outcome is not in the inbox"


def task_has_parent(record: Record) -> Iterator[str]:
    """A queued step that is unfinished has a process that asked for it."""
    process = record.process
    asked_for = child.is_task(process.kind) and not process.final
    if any(message.type in child.ORDERS for message in record.messages):
        return  # it has been asked to end
    if asked_for and process.parent is not None and process.parent not in record.kin:
        yield f"process {id_text(process.parent)}, which asked for this step, is not there any more"


def _waited_for(record: Record) -> Iterator[tuple[Event, bytes]]:
    """The children that an unfinished process waits for, whose outcome is neither recorded nor in its inbox."""
    if record.process.final:
        return
    answered = {(event.name, event.place) for event in record.events if event.message is not None}
    there = {message.id for message in record.messages}
    for event in record.events:
        if event.type is EventType.CHILD_STARTED and (event.name, event.place) not in answered:
            id = _child_of(event)
            if id is not None and id not in there:
                yield event, id


def _child_of(event: Event) -> bytes | None:
    try:
        return child.begun(event).id_bytes
    except PerdureError:
        return None  # record_is_readable and the code itself find that


def relatives(process: Process, events: Sequence[Event]) -> set[bytes]:
    """The ids of those whose rows belong into its record as ``kin``."""
    ids = (
        {_child_of(event) for event in events if event.type is EventType.CHILD_STARTED} if not process.final else set()
    )
    if process.parent is not None and child.is_task(process.kind) and not process.final:
        ids.add(process.parent)
    return {id for id in ids if id is not None and len(id) == 16}


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(json.decode(raw), dict)
    except MALFORMED:
        return False


# -- fixes -----------------------------------------------------------------------------------------------------------


def _looked_at(record: Record, text: str, order: FixOrder) -> Mend | None:
    """Give the row the time that its status wants."""
    process = record.process
    if process.final:
        return _laid_to_rest(record, text, order)
    if process.owner is not None:
        return _taken_from_owner(record, text, order)
    if process.status is Status.RUNNING:
        return Mend("it is due now", transition.due_now(process, now=order.now))
    after = replace(process, version=process.version + 1, due_at=order.idle_at, reminder=True)
    return Mend("people are reminded of it again", Commit(process.token, process.version, after))


def _laid_to_rest(record: Record, text: str, order: FixOrder) -> Mend | None:
    """Take from an ended process what only an unfinished one has."""
    process = record.process
    if not process.final or (process.due_at is None and process.owner is None and not process.reminder):
        return None
    after = replace(process, version=process.version + 1, due_at=None, owner=None, reminder=False)
    return Mend("it has neither a due time nor an owner", Commit(process.token, process.version, after))


def _taken_from_owner(record: Record, text: str, order: FixOrder) -> Mend | None:
    process = record.process
    if process.owner is None:
        return None
    if process.final:
        return _laid_to_rest(record, text, order)
    if process.status is Status.RUNNING:
        freed = transition.orphaned(process, now=order.now, died=False, worker="a check", idle_at=order.idle_at)
        return Mend("it is taken from its owner, and due now", freed)
    commit = transition.forced(process, process.status, (), order.now, error=process.error, due_at=order.idle_at)
    return Mend("it is taken from its owner, and stays as it is", commit)


def _due_now(record: Record, text: str, order: FixOrder) -> Mend | None:
    return Mend("it is due now", transition.due_now(record.process, now=order.now))


def _reminded(record: Record, text: str, order: FixOrder) -> Mend | None:
    return Mend("it is looked at again within a day", transition.reminded(record.process, idle_at=order.idle_at))


def _parked(record: Record, text: str, order: FixOrder) -> Mend | None:
    """Park a running process as broken, so that no code runs on a damaged history."""
    process = record.process
    if process.status is not Status.RUNNING:
        return None
    by = f", by order of {order.who}" if order.who else ""
    failure = Failure(type="DamagedRecord", message=f"a check found: {text}; parked{by}. {integrity.ADVICE}")
    commit = transition.broken(process, failure, now=order.now, idle_at=order.idle_at)
    if any(event.number > process.events for event in record.events):
        commit = transition.unrecorded(commit)
    return Mend("it is parked as broken with what was found; nothing of it is done again", commit)


def _told_again(record: Record, text: str, order: FixOrder) -> Mend | None:
    """Send the outcomes again; the inbox knows one that is there already by its id."""
    ended = [record.kin[id] for _, id in _waited_for(record) if id in record.kin and record.kin[id].final]
    sends = tuple(message for row in ended for message in child.answer(row) if message.process == record.process.id)
    return Mend(f"the outcome of {len(sends)} children is sent again", sends=sends) if sends else None


def _asked_to_end(record: Record, text: str, order: FixOrder) -> Mend | None:
    process = record.process
    if process.parent is None:
        return None
    return Mend("it is asked to end", sends=(child.cancel(process.id, process.parent),))


_RESTORE = "restore what is missing from a backup, or end the process; --fix parks it while it is running"
CHECKS: tuple[Check, ...] = (
    Check(
        "unfinished_is_due", "an unfinished process has a time at which it is looked at, an ended one has none",
        soundness.unfinished_is_due, "it gets the time that its status wants", _looked_at,
    ),
    Check(
        "one_owner", "only a running process has an owner, and its history was written by one owner after another",
        soundness.one_owner, "it is taken from an owner that it must not have", _taken_from_owner,
    ),
    Check(
        "one_transaction", "the row, its events and its messages tell one story",
        soundness.one_transaction, _RESTORE, _parked,
    ),
    Check(
        "history_is_gapless", "events are numbered 1, 2, 3, … and the row counts them",
        soundness.history_is_gapless, _RESTORE, _parked,
    ),
    Check(
        "result_once", "a step has one result, a timer fires once, a message is received once",
        soundness.result_once, _RESTORE, _parked,
    ),
    Check(
        "nothing_unheard", "a process that nobody owns and that has unread messages is due",
        soundness.nothing_unheard, "it is made due now", _due_now,
    ),
    Check(
        "no_early_timer", "no event is of a time that has not come, or before the one that it follows",
        soundness.no_early_timer, "see `perdure clock`: a clock was ahead; nothing is changed",
    ),
    Check(
        "accepted_is_kept", "every message that was accepted is there",
        soundness.accepted_is_kept, _RESTORE, _parked,
    ),
    Check(
        "operators_use_the_front_door", "each command says who gave it and why",
        soundness.operators_use_the_front_door, "find out who has written into the database; nothing is changed",
    ),
    Check(
        "finished_is_final", "nothing happens after the end, and an end says what came of it",
        soundness.finished_is_final, "it loses what only an unfinished process has; a result is never made up",
        _laid_to_rest,
    ),
    Check(
        "record_is_readable", "everything that is stored about a process can be read",
        record_is_readable, "correct the text in the database, or restore it; --fix parks a running process", _parked,
    ),
    Check(
        "owner_is_known", "the owner of a process is a worker that lives or has lived",
        owner_is_known, "it is taken from that owner, and due now", _taken_from_owner,
    ),
    Check(
        "reminder_is_near", "a process that waits for nothing timed is looked at again within about a day",
        reminder_is_near, "it is looked at again within a day", _reminded,
    ),
    Check(
        "child_is_there", "a child or queued step that a process waits for is there",
        child_is_there, "give its result by hand, or restart the process; --fix parks it while it is running", _parked,
    ),
    Check(
        "parent_is_told", "the outcome of an ended child is in the inbox of its parent",
        parent_is_told, "the outcome is sent again", _told_again,
    ),
    Check(
        "task_has_parent", "an unfinished queued step has a process that asked for it",
        task_has_parent, "the step is asked to end", _asked_to_end,
    ),
)  # fmt: skip
"""All checks, in the order in which they look and mend. Their names are kept with findings, and stay."""

BY_NAME: Mapping[str, Check] = {check.name: check for check in CHECKS}


def named(names: Collection[str]) -> tuple[Check, ...]:
    """The checks of these names, all if there are none; raises InvalidInput."""
    for name in names:
        if name not in BY_NAME:
            raise InvalidInput(f"there is no check {name!r:.100}.{near(name, BY_NAME)} `perdure check ls` lists them.")
    return tuple(check for check in CHECKS if not names or check.name in names)


def is_foreign(process: Process, events: Sequence[Event], messages: Sequence[Message]) -> bool:
    """Whether a record holds what only others can judge: what a newer Perdure wrote, or is sealed for other keys."""
    if type(process.status) is not Status:
        return True
    if any(type(event.type) is not EventType for event in events):
        return True
    if any(type(message.type) is not MessageType for message in messages):
        return True
    payloads = [event.payload for event in events] + [message.payload for message in messages]
    return first_trouble([*payloads, process.input, process.state, process.result, process.error]) is not None


def detected(checks: Sequence[Check], record: Record) -> list[Finding]:
    """What these checks find wrong, at most one finding each; where a record cannot be read, only that."""
    if any(record_is_readable(record)):
        checks = [check for check in checks if check.detect is record_is_readable]
    found = ((check.name, list(islice(check.detect(record), TEXTS + 1))) for check in checks)
    return [Finding(name, record.process.id, _told(texts)) for name, texts in found if texts]


def _told(texts: Sequence[str]) -> str:
    return "; ".join(texts[:TEXTS]) + ("; and more" if len(texts) > TEXTS else "")


def mend(finding: Finding, record: Record, order: FixOrder) -> Mend | None:
    """How this finding would be mended; None if nothing safe is known. Nothing is written here."""
    check = BY_NAME[finding.law]
    return None if check.fix is None else check.fix(record, finding.text, order)
