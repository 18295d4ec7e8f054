"""Parking: a process that cannot go on without a person is let go, and written down as broken with what is known."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.errors import BadRecord, StoreError
from perdure.kernel import transition
from perdure.kernel.commit import Commit, CommitAnswer, Verdict
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation
    from perdure.runtime.scheduler import Scheduler

log = logging.getLogger("perdure")


def park(scheduler: Scheduler, activation: Activation, error: BaseException) -> None:
    """Park a process of which no commit is in flight; what it did not write is void."""
    scheduler.drop(activation)
    time = scheduler.time
    commit = transition.broken(activation.process, Failure.of(error), now=time.now(), idle_at=time.idle_at())
    scheduler.committer.commit(commit, partial(_parked, scheduler, commit, error))


def unwritten(scheduler: Scheduler, activation: Activation, error: StoreError) -> None:
    """Let a process go whose commit was not written: parked, if that is because of what it would write."""
    log.error("process %s: its commit was not written: %s", id_text(activation.process.id), error)
    if isinstance(error, BadRecord):
        scheduler.park(activation, error)
    else:
        scheduler.drop(activation)


def _parked(scheduler: Scheduler, commit: Commit, error: BaseException, answer: Any) -> None:
    """Hear what became of it. Where it was refused somebody else has the process, and nothing is to be said."""
    process = commit.after
    if isinstance(answer, CommitAnswer) and answer.verdict is Verdict.APPLIED:
        log.error("process %s is broken and waits for a person: %s", id_text(process.id), error)
        scheduler.telemetry.counters["broken"] += 1
        scheduler.ended(commit.after, scheduler.committer.sent)
    elif isinstance(answer, BadRecord) and commit.events:
        bare = transition.unrecorded(commit)
        scheduler.committer.commit(bare, partial(_parked, scheduler, bare, error))
    elif isinstance(answer, StoreError):  # its lease lapses, and whoever takes it over parks it
        log.error("process %s could not be parked as broken: %s", id_text(process.id), answer)
