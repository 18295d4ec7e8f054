"""The retry of a whole workflow: a process whose code has failed begins again, in a new run, by a retry policy.

It does not pass through ``failed``, so callers, parents and reply addresses hear of the last attempt alone. The new run
has the input of the one before and may receive the same letters. Its second event says after which failure it begins,
and when: a worker with an older Perdure does not know that event, and leaves the process to a newer one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.errors import DefinitionError, StepError
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.notice import notices
from perdure.kernel.plain import shown
from perdure.kernel.process import Process
from perdure.kernel.retry import PLAIN, FailedAttempt, Retry, decode_attempt
from perdure.kernel.run import TRIED_AGAIN, Opening, followed, opening_of

UNTIL_NEXT_ATTEMPT = "the time of its next attempt"
"""What a process waits for until its next attempt begins, for people."""

_OF_STEPS = ("budget", "timeout_factor", "timeout_cap", "then")
"""What a Retry can say of steps alone."""
FIRST_EVENTS = 2
"""So many events at the beginning of a run say how it was opened."""


def of_a_workflow(retry: Retry, what: str) -> Retry:
    """The retry of a workflow; raises DefinitionError for one that is none, or that only a step can have."""
    if not isinstance(retry, Retry):
        raise DefinitionError(f"{what} has retry={shown(retry)}. Write retry=Retry(attempts=3).")
    for name in _OF_STEPS:
        if getattr(retry, name) != getattr(PLAIN, name):
            raise DefinitionError(f"{what} has Retry({name}=...), which only a step can have. Leave it out.")
    return retry


def last_attempt(history: Sequence[Event]) -> FailedAttempt | None:
    """The attempt that has failed before this run, and when this one begins; None if the run is the first attempt."""
    if len(history) < FIRST_EVENTS or history[1].type is not EventType.RUN_RETRIED:
        return None
    return decode_attempt(history[1].payload or b"")


def number_of(history: Sequence[Event]) -> int:
    """Which attempt of the workflow this run is, from 1."""
    before = last_attempt(history)
    return 1 if before is None else before.attempt + 1


def follows(
    retry: Retry, process: Process, history: Sequence[Event], error: BaseException, now: int, chance: float
) -> int | None:
    """When the next attempt begins (microseconds), or None if the process has failed with this error.

    ``history`` are the first events of the run, ``chance`` is from 0 up to 1.
    """
    if not retry.retries(error) or not _curable(error) or opening_of(history).letters:
        return None  # letters that a run was opened with, as runs of the first releases were, cannot be put back
    spent = (now - _since(process, history)) / SECOND
    delay = retry.next_delay(number_of(history), spent, chance, wait=retry.wait_after(error))
    if delay is None:
        return None
    at = now + microseconds(delay)
    return None if process.deadline is not None and at >= process.deadline else at


def _since(process: Process, history: Sequence[Event]) -> int:
    """When the first attempt began."""
    before = last_attempt(history)
    return (process.opened_at or 0) if before is None else before.since


def _curable(error: BaseException) -> bool:
    """Whether no step has said that another attempt would fail too."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_curable, error.exceptions))
    failure = error.failure if isinstance(error, StepError) else None
    return not (isinstance(failure, Failure) and failure.permanent)


def tried_again(process: Process, history: Sequence[Event], failure: Failure, *, at: int, now: int) -> Commit:
    """End the failed run of an owned process and open the next one, which begins at ``at``, without an owner.

    ``history`` are the first events of the run that has failed. All else is as in a run that continues as new, but that
    the letters which this run has received are put back into the inbox.
    """
    before = opening_of(history)
    opening = Opening(
        process.run,
        0,
        done=TRIED_AGAIN,
        sender={"who": f"process {id_text(process.id)}", "origin": "workflow"},
        void=before.void,
        seed=process.run + 1,
        input=before.input,
        seen=process.seen,
    )
    failed = FailedAttempt(number_of(history), _since(process, history), at, failure)
    events = (
        Event(1, 0, EventType.RUN_OPENED, now, payload=opening.encode()),
        Event(2, 0, EventType.RUN_RETRIED, now, payload=failed.encode()),
    )
    due_at = min(at, now + microseconds(limits.FARTHEST_SECONDS))
    after = replace(followed(process, len(events), now), due_at=due_at, awaiting=UNTIL_NEXT_ATTEMPT)
    sends = notices(process, after)
    return Commit(process.token, process.version, after, events, sends=sends, offered=process.seen + 1)
