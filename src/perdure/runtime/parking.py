"""Parking: a process that cannot go on without a person is let go, and written down as broken with what is known."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from perdure.errors import StoreError
from perdure.kernel import transition
from perdure.kernel.commit import CommitAnswer, Verdict
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation
    from perdure.runtime.scheduler import Scheduler

log = logging.getLogger("perdure")


def park(scheduler: Scheduler, activation: Activation, error: BaseException) -> None:
    """Park a process of which no commit is in flight; what it did not write is void."""
    process = activation.process
    scheduler.drop(activation)
    time = scheduler.time
    commit = transition.broken(process, Failure.of(error), now=time.now(), idle_at=time.idle_at())

    def answered(answer: Any) -> None:
        if isinstance(answer, CommitAnswer) and answer.verdict is Verdict.APPLIED:
            scheduler.telemetry.counters["broken"] += 1
            scheduler.ended(commit.after, scheduler.committer.sent)
        elif isinstance(answer, StoreError):  # its lease lapses, and whoever takes it over parks it
            log.error("process %s could not be parked as broken: %s", id_text(process.id), answer)

    scheduler.committer.commit(commit, answered)
