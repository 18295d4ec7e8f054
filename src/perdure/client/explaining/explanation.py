"""An explanation: why one process does not move, since when, what speaks for it, what comes, and what can be done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from perdure.client.explaining.causes import FoundCause, reasons
from perdure.client.explaining.commanded import commanded_by
from perdure.client.explaining.diagnosis import GOES_ON, Diagnosis
from perdure.client.explaining.evidence import Evidence, gathered
from perdure.client.explaining.proposals import Proposal, proposals
from perdure.client.parts import ClientParts
from perdure.client.view import instant
from perdure.kernel.diagnosis import Mover, NextMover
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status

DEPTH = 5
"""So many generations of children are explained with a process that waits for them."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a process does not move, or what it rightly waits for.

    ``cause`` is a stable word, ``why`` a sentence; ``since`` is when that began, whatever reminded people of it since.
    ``evidence`` are the facts that speak for it, ``also`` other causes that fit too. ``mover`` moves it next; ``next``
    says what happens by itself, at ``next_at`` if that is known. ``proposals`` are commands to copy. ``child`` is the
    explanation of a child that it waits for: the one that stands still, if one does. ``stands_still`` says that it does
    not go on by itself: somebody should look.
    """

    id: str
    kind: str
    key: str | None
    status: Status
    cause: Diagnosis
    why: str
    since: datetime
    stands_still: bool
    evidence: tuple[str, ...]
    also: tuple[Diagnosis, ...]
    mover: NextMover
    next: str
    next_at: datetime | None
    proposals: tuple[Proposal, ...]
    child: Explanation | None = None


async def explained(parts: ClientParts, row: Process, depth: int = DEPTH) -> Explanation:
    """Read what is known of a process, and explain it; a child that it waits for too, as deep as this."""
    evidence = await gathered(parts.store, row)
    reason, *others = reasons(evidence)
    child = await _child(parts, evidence, depth) if reason.cause is Diagnosis.WAITS_FOR_CHILD else None
    mover, following, at = _next(evidence, reason)
    if mover is NextMover.PERSON and (operation := await commanded_by(parts.store, row, evidence.now)) is not None:
        mover, following = NextMover.OPERATION, f"operation {operation} is going to command it"
    facts = reason.evidence
    if reason.cause is Diagnosis.WAITS_FOR_CHILD and depth == 0:
        facts += (f"its children were not explained: {DEPTH} generations were. `perdure explain` them by their ids",)
    explanation = Explanation(
        id=id_text(row.id),
        kind=str(row.kind),
        key=None if row.key is None else str(row.key),
        status=row.status,
        cause=reason.cause,
        why=reason.why,
        since=instant(reason.since),
        stands_still=reason.cause not in GOES_ON,
        evidence=facts,
        also=tuple(
            dict.fromkeys(one.cause for one in others if one.cause not in GOES_ON and one.cause != reason.cause)
        ),
        mover=mover,
        next=following,
        next_at=instant(at),
        proposals=tuple(proposals(evidence, reason)),
    )
    if child is None:
        return explanation
    return replace(explanation, child=child, stands_still=child.stands_still)


async def _child(parts: ClientParts, evidence: Evidence, depth: int) -> Explanation | None:
    """The first of the doubtful children that stands still; if none does, the first of all."""
    first = None
    for row in evidence.children if depth else ():
        found = await explained(parts, row, depth - 1)
        if found.stands_still:
            return found
        first = first or found
    return first


_BY_A_PERSON = frozenset(
    {
        Diagnosis.RETRIES_SPENT, Diagnosis.HISTORY_MISFIT, Diagnosis.PAYLOAD_UNREADABLE, Diagnosis.RECORD_UNSOUND,
        Diagnosis.WAITS_FOR_NOTHING, Diagnosis.HELD, Diagnosis.SET_BACK, Diagnosis.QUEUE_BLOCKED,
        Diagnosis.RECOVERY_PAUSED, Diagnosis.NEWER_RECORD,
    }
)  # fmt: skip
_COMES = {
    Diagnosis.NO_HOST_OF_KIND: "as soon as a worker that hosts it is started, it is taken",
    Diagnosis.NO_HOST_OF_VERSION: "as soon as a worker with that version is started, it is taken",
    Diagnosis.QUEUE_NOT_POLLED: "as soon as a worker that serves the queue is started, it is taken",
    Diagnosis.QUEUE_FULL: "as soon as the limits allow it, a worker takes it",
    Diagnosis.KIND_FULL: "as soon as a place is free, it is admitted: by priority, and what has been due longest first",
    Diagnosis.HOSTS_BUSY: "as soon as a host has room, it is taken: by priority, and what has been due longest first",
    Diagnosis.WORKER_LOST: "another worker takes it over: at once if the worker has died, else when its lease ends",
    Diagnosis.CRASHES_ITS_WORKER: "it runs in quarantine; if it kills its worker there again, it is parked as broken",
    Diagnosis.HANGS_ITS_WORKER: "if it blocks until the lease ends, the worker is ended, and another one takes it",
    Diagnosis.NO_PROGRESS: "its steps run until they end or their timeouts come; its lease is renewed until then",
    Diagnosis.OVER_DEADLINE: "a live worker ends it as failed",
    Diagnosis.MOVES: "it goes on",
    Diagnosis.WAITS_FOR_MESSAGE: "it goes on when the message comes",
    Diagnosis.WAITS_FOR_CHILD: "it goes on when the child ends",
    Diagnosis.WAITS_FOR_TIME: "it goes on at that time",
    Diagnosis.CLOCK_JUMPED: "it goes on at that time, by the store's own clock",
    Diagnosis.RETRYING: "the next attempt is made at that time",
}


def _next(evidence: Evidence, reason: FoundCause) -> tuple[NextMover, str, int | None]:
    """Who moves it next, what happens by itself, and when."""
    row, mover = evidence.row, evidence.mover
    if reason.cause is Diagnosis.ENDED:
        return NextMover.NOBODY, "nothing: it has ended", None
    waits = row.status in (Status.HELD, Status.BROKEN, Status.FAILED)
    if waits or reason.cause in _BY_A_PERSON:
        return NextMover.PERSON, "nothing, until a person does something", None
    if mover.who is NextMover.OUTAGE:
        return mover.who, "it goes on" if reason.cause is Diagnosis.MOVES else _after(mover), mover.until
    if reason.cause is Diagnosis.DEPENDENCY_DOWN:
        barred = evidence.queues.barred(row)
        text = "the next attempt is made then" if barred is None else "one attempt is let through then, as a probe"
        return mover.who, text, mover.until
    at = mover.until if reason.cause not in _SOME_TIME else None
    if row.reminder:
        at = None  # a reminder is no time at which it goes on
    return mover.who, _COMES[reason.cause], at


def _after(outage: Mover) -> str:
    """What comes next while its kind is held."""
    if outage.until is None:
        return "nothing, until a person ends the outage"
    return "a canary is let through then; if it ends well, the others are let go, few at first"


_SOME_TIME = frozenset({Diagnosis.MOVES, Diagnosis.NO_PROGRESS, Diagnosis.HANGS_ITS_WORKER, Diagnosis.OVER_DEADLINE})
"""Where the end of a lease says nothing of when it goes on."""
