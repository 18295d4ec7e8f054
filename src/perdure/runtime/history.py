"""A history that grows long: people are told in time, and at its limit the process is held until one decides."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from perdure import limits
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.outcome import Outcome
from perdure.kernel.process import Status
from perdure.runtime.activation import Activation

log = logging.getLogger("perdure")


def bounded(activation: Activation, outcome: Outcome) -> Outcome:
    """The outcome, or a hold in its place; a person who lets the process go on grants it as many events again.

    A child's start and its answer do not count: a process has as many children as it needs.
    """
    if activation.number < limits.HISTORY_WARN_EVENTS:
        return outcome
    family = 0 if activation.outbox is None else 2 * activation.outbox.started
    if activation.number < family + limits.HISTORY_WARN_EVENTS:
        return outcome
    bound = activation.resumed + family + limits.HISTORY_HOLD_EVENTS
    if activation.number >= bound:
        text = f"the history has {activation.number} events; have it continue as new, or go on with `perdure retry`"
        failure = Failure(type="HistoryTooLong", message=text)
        return replace(outcome, status=Status.HELD, busy=False, wake_at=None, error=failure.encode())
    if not activation.warned:
        activation.warned = True
        log.warning(
            "process %s (%s) has a history of %d events and will be held at %d: every revival replays all of it. "
            "Have it continue as new with what it has come to",
            id_text(activation.process.id),
            activation.process.kind,
            activation.number,
            bound,
        )
    return outcome
