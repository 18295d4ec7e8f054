"""The wording of causes: what several of them ask of the evidence, and how they tell it."""

from __future__ import annotations

from collections.abc import Iterator

from perdure import limits
from perdure.client.explaining.evidence import Evidence
from perdure.client.view import instant
from perdure.kernel import hosting
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.diagnosis import steps_under_way
from perdure.kernel.names import id_text
from perdure.kernel.process import Status


def is_due(evidence: Evidence) -> bool:
    """Whether a worker could claim it now: its time has come, and no queue keeps it."""
    row = evidence.row
    running = row.status is Status.RUNNING and row.owner is None and not row.reminder
    return running and (row.due_at or evidence.now) <= evidence.now and evidence.queues.barred(row) is None


def is_lost(evidence: Evidence) -> bool:
    """Whether the worker that holds it is gone, or has let the lease lapse."""
    row, owner = evidence.row, evidence.owner
    if row.owner is None:
        return False
    lapsed = row.due_at is not None and row.due_at <= evidence.now
    return lapsed or (owner is not None and bool(hosting.gone(owner, evidence.now)))


def time_text(microseconds: int) -> str:
    """A time of the store in words."""
    at = instant(microseconds)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def owner_name(evidence: Evidence) -> str:
    """The worker that holds it, by name, or by id if it is not remembered."""
    return id_text(evidence.row.owner or b"") if evidence.owner is None else evidence.owner.name


def recovery_paused(evidence: Evidence) -> str:
    """Who has paused automatic recovery, and why; empty if nobody has."""
    row = evidence.recovery
    if row.blocked_at is None:
        return ""
    why = row.blocked_why or "(no reason given)"
    return f"automatic recovery is paused by {row.blocked_by or 'somebody'} because: {why}"


def steps_told(evidence: Evidence) -> str:
    """The steps that ran when the worker told of them last."""
    steps = steps_under_way(evidence.row)
    return f"its last heartbeat says that step {', '.join(steps)} runs" if steps else ""


def deaths_told(evidence: Evidence) -> list[str]:
    """Every loss of a worker in this run, and which step ran then."""
    told = []
    for event, said in evidence.revivals():
        what = "hung" if "hung" in said else "died" if said.get("died") else "was lost"
        told.append(f"worker {said.get('worker', 'unknown')} {what} at {time_text(event.at)}: {evidence.ran_at(event)}")
    return told


def attempt_told(evidence: Evidence) -> Iterator[str]:
    """The attempt of a step that has failed last, if another one is to follow."""
    if evidence.trying is not None:
        event, tried = evidence.trying
        yield f"attempt {tried.before + tried.attempt} of step {event.name} has failed at {time_text(event.at)}"


def spent_told(evidence: Evidence) -> Iterator[str]:
    """How often the step was tried whose error has ended the process, if one's has."""
    if evidence.failure is not None and (step := evidence.failure.step):
        tried = {0: "has failed", 1: "was tried once"}.get(evidence.tried, f"was tried {evidence.tried} times")
        yield f"step {step} {tried}, and no attempt is left"


def alike_told(evidence: Evidence) -> Iterator[str]:
    """How many others of its kind have the same trouble."""
    if evidence.alike > 1:
        many = limits.LIST_ROWS
        among = f"the newest {many:,}" if evidence.looked_at >= many else f"{evidence.looked_at:,}"
        print_ = "" if evidence.cause is None else f" (fingerprint {evidence.cause.fingerprint})"
        yield f"{evidence.alike:,} of {among} such processes of this kind have the same trouble{print_}"


def queue_told(evidence: Evidence) -> Iterator[str]:
    """How many live workers serve its queue."""
    row, found = evidence.row, evidence.hosting
    queue = row.kind.removeprefix(QUEUE_MARK)
    yield f"{len(found.alive):,} live workers serve queue {queue}"
