"""Transitions: each turns a process's row, what has arrived and what the code made of it into the one commit to write.

Nothing here reads a clock or waits: the times and the ids are handed in. Every function gives a
:class:`~perdure.kernel.commit.Commit`; those for commands check :data:`~perdure.kernel.process.MOVES` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove, PerdureError
from perdure.kernel import child, quarantine, undo
from perdure.kernel.checkpoint import as_far_as_known
from perdure.kernel.commit import Commit, Outcome, Start
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import MARKED_FAILED, OVER_DEADLINE, Failure
from perdure.kernel.message import Message
from perdure.kernel.notice import notices
from perdure.kernel.process import COMPLETED, FINAL, MOVES, RUNNING, Process, Status
from perdure.kernel.stored import MALFORMED, under_way
from perdure.kernel.worker import Hang
from perdure.limits import ALONE_DEATHS

_LAST_EVENT = {
    Status.COMPLETED: EventType.COMPLETED,
    Status.FAILED: EventType.FAILED,
    Status.CANCELLED: EventType.CANCELLED,
    Status.BROKEN: EventType.BROKEN,
    Status.HELD: EventType.HELD,
}


AUTOMATIC = "automatic"
"""The origin of a change that no person has ordered."""


class Sender(Struct, frozen=True, omit_defaults=True):
    """Who asks, why, and from where (``client``, ``cli``, ``supervisor``, …): recorded with every command.

    The sender of a message may have a ``context``, as a JSON text.
    """

    who: str = ""
    why: str = ""
    origin: str = ""
    context: str = ""

    @classmethod
    def read(cls, stored: bytes | None) -> Sender:
        """The sender of an order; one that was damaged takes nothing from the order itself, which can be read."""
        try:
            return json.decode(stored or b"{}", type=cls)
        except MALFORMED:
            return cls(why="who asked for it cannot be read")

    def encode(self) -> bytes:
        """The sender as the JSON that is stored."""
        return json.encode(self)


class Rescuer(NamedTuple):
    """Who has found that a process stands still: the name of a worker, and its sweep, or its ``claim``."""

    by: str
    sweep: str


def turn(
    process: Process,
    events: Sequence[Event],
    outcome: Outcome,
    *,
    now: int,
    lease: int,
    idle_at: int,
    consumed: tuple[tuple[int, int], ...] = (),
    not_before: int = 0,
    cleared: bool = False,
    starts: tuple[Start, ...] = (),
    sends: tuple[Message, ...] = (),
) -> Commit:
    """The commit that ends a turn: its events, and the row as the outcome leaves it.

    A row that stays busy gets ``lease``; a row without timers is checked again at ``idle_at``.
    ``cleared`` says that all that was in flight at a worker's death has been recorded: the deaths are forgotten.
    A child that ends tells its parent, and any process its reply address, in the same commit. ``consumed`` is in the
    order of the messages' numbers.
    """
    status = outcome.status
    written = tuple(events)
    if status is not RUNNING:
        number = process.events + len(written) + 1
        payload = None if status is COMPLETED else outcome.error
        written += (Event(number, 0, _LAST_EVENT[status], now, payload=payload),)
    busy = outcome.busy and status is RUNNING
    due_at, reminder = (None, False) if busy else _next_look(status, outcome.wake_at, idle_at)
    after = replace(
        process,
        status=status,
        version=process.version + 1,
        owner=process.owner if busy else None,
        due_at=due_at,
        reminder=reminder,
        seen=max(process.seen, consumed[-1][0]) if consumed else process.seen,
        events=process.events + len(written),
        awaiting=outcome.awaiting,
        deaths=0 if cleared else process.deaths,
        alone_deaths=0 if cleared else process.alone_deaths,
        state=outcome.state,
        result=outcome.result,
        error=outcome.error,
    )
    if process.parent is not None:
        sends += child.answer(after)
    if process.attributes is not None:
        sends += notices(process, after)
    return Commit(
        process.token, process.version, after, written, consumed, lease if busy else 0, not_before, None, starts, sends,
        removes=outcome.removes,
    )  # fmt: skip


def _next_look(status: Status, wake_at: int | None, idle_at: int) -> tuple[int | None, bool]:
    """When a row that nobody owns must be looked at, and whether that is a reminder (law: unfinished_is_due)."""
    if status in FINAL:
        return None, False
    if status is RUNNING and wake_at is not None:
        return wake_at, False
    return idle_at, True


def orphaned(
    process: Process,
    *,
    now: int,
    died: bool,
    worker: str,
    idle_at: int,
    held: int = 1,
    hang: Hang | None = None,
    by: Rescuer | None = None,
) -> Commit:
    """Free a process that an ended worker held: new token, due now, the death counted if there is evidence of one.

    ``held`` is how many suspects the worker held, see :mod:`~perdure.kernel.quarantine`. A process whose worker died
    too often while it ran alone is parked as broken, with the evidence (rule 13). If ``hang`` says which process has
    hung the worker, that counts as a death against this process and as nothing against the others; while it runs
    alone, one hang parks it. ``by`` says who has found the process.
    """
    ran_alone = quarantine.company(process) == 1
    hung = hang is not None and hang.process == process.id
    deaths, alone = process.deaths, process.alone_deaths
    counted = died if hang is None else hung
    waited = counted and not hung and quarantine.only_waited(process)
    if counted and not waited:
        deaths, alone = quarantine.after_death(process, 1 if hung else held)
    evidence: dict[str, Any] = {"worker": worker, "died": counted, "deaths": deaths, "alone_deaths": max(alone, 0)}
    evidence |= {"origin": AUTOMATIC} | ({"waited": True} if waited else {}) | ({} if by is None else by._asdict())
    if counted and (steps := _ran(process)):
        evidence["steps"] = steps
    freed = replace(process, deaths=deaths, alone_deaths=alone)
    if quarantine.is_suspect(freed):
        evidence["company"] = quarantine.company(freed)
    if hang is not None and hung:
        evidence["hung"] = {"where": hang.where, "seconds": round(hang.seconds, 1), "stack": hang.stack}
    revived = Event(process.events + 1, 0, EventType.REVIVED, now, payload=json.encode(evidence))
    if hang is not None and hung and ran_alone:
        name = worker.partition(" ")[0]
        error = Failure(type="Hung", message=_hung(deaths, worker, hang), trace=hang.stack, worker=name).encode()
        parked = Event(process.events + 2, 0, EventType.BROKEN, now, payload=error)
        return forced(freed, Status.BROKEN, (revived, parked), now, error=error, due_at=idle_at)
    if alone >= ALONE_DEATHS:
        text = (
            f"its worker died {deaths} times with neighbours and {alone} times while it ran alone; "
            f"the last was {worker}"
        )
        error = Failure(type="Poison", message=text, worker=worker.partition(" ")[0]).encode()
        parked = Event(process.events + 2, 0, EventType.BROKEN, now, payload=error)
        return forced(freed, Status.BROKEN, (revived, parked), now, error=error, due_at=idle_at)
    return forced(freed, Status.RUNNING, (revived,), now, due_at=now, error=process.error)


def _ran(process: Process) -> list[str]:
    """The steps that ran when the worker told of them last: each by its name and place."""
    try:
        return sorted(under_way(process.progress))
    except PerdureError:
        return []


def _hung(deaths: int, worker: str, hang: Hang) -> str:
    return (
        f"{hang.where} has blocked its worker's event loop while it ran alone, for {hang.seconds:.0f} s, after its "
        f"workers had died or hung {deaths} times; the last was {worker}"
    )


def released(process: Process, *, due_at: int) -> Commit:
    """Hand a row back unchanged, due at ``due_at``; a release keeps the token (rule 10)."""
    after = replace(process, version=process.version + 1, owner=None, due_at=due_at, reminder=False)
    return Commit(process.token, process.version, after)


def reminded(process: Process, *, idle_at: int) -> Commit:
    """Move a reminder on, after a sweep has looked."""
    after = replace(process, version=process.version + 1, due_at=idle_at)
    return Commit(process.token, process.version, after)


def due_now(process: Process, *, now: int) -> Commit:
    """Make a waiting process due: something has arrived that it has not noticed."""
    after = replace(process, version=process.version + 1, due_at=now, reminder=False)
    return Commit(process.token, process.version, after)


def expired(process: Process, history: Sequence[Event] = (), *, now: int) -> Commit:
    """End a process that is over its deadline as failed; no turn is needed, and nothing is undone.

    The store has said that it is: who has not heard yet of a jump of its clock dates the end no earlier than that.
    """
    _allow(process, Status.FAILED, "expire")
    now = max(now, process.deadline or 0)
    failure = _forced_end(OVER_DEADLINE, "the process ran over its deadline", as_far_as_known(process, history))
    event = Event(process.events + 1, 0, EventType.EXPIRED, now, payload=failure.encode())
    return _parting(forced(process, Status.FAILED, (event,), now, error=failure.encode()), history)


def broken(process: Process, failure: Failure, *, now: int, idle_at: int) -> Commit:
    """Park a process that cannot go on without a person, with its failure."""
    _allow(process, Status.BROKEN, "park")
    event = Event(process.events + 1, 0, EventType.BROKEN, now, payload=failure.encode())
    return forced(process, Status.BROKEN, (event,), now, error=failure.encode(), due_at=idle_at)


def terminated(
    process: Process, sender: Sender, history: Sequence[Event] = (), *, now: int, asked: bool = False
) -> Commit:
    """End a process at once, without its code: steps in flight are fenced off by the new token.

    Nothing is undone; the steps that should have been, by its history, are listed (rule 23). ``asked`` says that it was
    asked to cancel, and that its time to do so is over.
    """
    _allow(process, Status.CANCELLED, "terminate")
    now = max(now, process.deadline or 0) if asked else now  # as in :func:`expired`
    why = f" because: {sender.why}" if sender.why else ""
    after = ", after it was asked to cancel," if asked else ""
    text = f"terminated{after} by {sender.who or 'somebody'}{why}"
    failure = _forced_end("Terminated", text, as_far_as_known(process, history))
    told: dict[str, Any] = to_builtins(sender) | ({"not_undone": failure.owed} if failure.owed else {})
    told |= {"asked": True} if asked else {}
    event = Event(process.events + 1, 0, EventType.TERMINATED, now, payload=json.encode(told))
    return _parting(forced(process, Status.CANCELLED, (event,), now, error=failure.encode()), history)


def given_up(process: Process, sender: Sender, history: Sequence[Event] = (), *, now: int) -> Commit:
    """End a process as failed because a person says so, without its code; like :func:`terminated` in all else."""
    _allow(process, Status.FAILED, "fail")
    why = f" because: {sender.why}" if sender.why else ""
    text = f"marked as failed by {sender.who or 'somebody'}{why}"
    failure = _forced_end(MARKED_FAILED, text, as_far_as_known(process, history))
    told: dict[str, Any] = to_builtins(sender) | ({"not_undone": failure.owed} if failure.owed else {})
    event = Event(process.events + 1, 0, EventType.GIVEN_UP, now, payload=json.encode(told))
    return _parting(forced(process, Status.FAILED, (event,), now, error=failure.encode()), history)


def preceded(commit: Commit, happened: Sequence[Event]) -> Commit:
    """The commit with the events of what has ``happened`` to the process before its own, numbered and dated anew.

    The times of a history never run back.
    """
    if not happened:
        return commit
    number, at = commit.after.events - len(commit.events), 0
    events: list[Event] = []
    for event in (*happened, *commit.events):
        number, at = number + 1, max(at, event.at)
        events.append(replace(event, number=number, at=at))
    return replace(commit, events=tuple(events), after=replace(commit.after, events=number))


def unrecorded(commit: Commit) -> Commit:
    """The commit without its events, for a history with more events than its row counts: nothing can be appended to it.

    Then only the row's error says who asked, and why.
    """
    after = replace(commit.after, events=commit.after.events - len(commit.events))
    return replace(commit, events=(), after=after)


def _parting(commit: Commit, history: Sequence[Event]) -> Commit:
    """The commit with the messages that end the children, in the same transaction."""
    return replace(commit, sends=commit.sends + child.farewell(commit.after.id, history))


def _forced_end(type: str, message: str, history: Sequence[Event]) -> Failure:
    left = undo.listed(undo.owed(history))
    if left:
        message += f"; not undone: {', '.join(left)}"
    return Failure(type=type, message=message, undone=undo.listed(undo.undone(history)), owed=left)


def _allow(process: Process, status: Status, verb: str) -> None:
    # A status that this Perdure does not know may only be left by force, and only if the process has a due time.
    if status not in MOVES.get(process.status, {Status.CANCELLED} if process.due_at is not None else ()):
        raise IllegalMove(f"cannot {verb} a process that is {process.status}; see its state with `perdure show`")


def forced(
    process: Process,
    status: Status,
    events: tuple[Event, ...],
    now: int,
    *,
    error: bytes | None = None,
    due_at: int | None = None,
    above: int = 0,
) -> Commit:
    """A commit that takes the row from its owner: no owner, and a new token, which is higher than ``above``, too."""
    after = replace(
        process,
        status=status,
        version=process.version + 1,
        token=max(process.token, above) + 1,
        owner=None,
        due_at=due_at,
        reminder=status in (Status.HELD, Status.BROKEN),
        events=process.events + len(events),
        awaiting=None,
        error=error,
        result=None,
    )
    return Commit(process.token, process.version, after, events, sends=child.answer(after) + notices(process, after))
