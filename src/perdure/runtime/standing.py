"""How a process in hand stands: what its turns so far would leave behind if they were written now."""

from __future__ import annotations

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel.failure import Failure
from perdure.kernel.outcome import STILL_BUSY, Outcome
from perdure.kernel.process import COMPLETED, Status
from perdure.runtime import lingering, undoing
from perdure.runtime.activation import Activation
from perdure.runtime.store_time import StoreTime

FARTHEST = microseconds(limits.FARTHEST_SECONDS)
"""A row whose timer is further away is looked at once before: no database and no calendar can hold every number."""


def outcome(activation: Activation, time: StoreTime, hold: int) -> Outcome:
    """What is left behind; a process that goes on within ``hold`` microseconds stays in hand."""
    loop = activation.loop
    outbox = activation.outbox
    if loop.finished and (outbox is None or not outbox.overfull):
        return _ending(activation)
    in_hand = activation.in_flight or activation.asked or activation.releasing or activation.inputs
    if in_hand or (outbox is not None and outbox.pending):
        return STILL_BUSY if loop.state is None else Outcome(busy=True, state=loop.state)
    timer = loop.next_timer()
    times = [activation.attempts[slot].retry_at for slot in activation.retries]
    if timer is not None:
        times.append(timer[0])
    away = 0 if outbox is None else len(outbox.out)
    if len(loop.open) > len(activation.retries) + away:  # a step is open and nobody runs it: whoever comes next will
        broken = undoing.broken(activation)
        return broken or Outcome(Status.RUNNING, False, time.now(), loop.awaiting(), loop.state)
    wake_at = min(times, default=None)
    if wake_at is not None:
        wake_at = min(wake_at, time.now() + FARTHEST)
    busy = (wake_at is not None and wake_at - time.now() <= hold) or lingering.until(activation) > time.now()
    # What it waits for is said also where it stays in hand, unless it is a timer: then no death counts against it.
    awaiting = None if busy and wake_at is not None else loop.awaiting()
    return Outcome(Status.RUNNING, busy, wake_at, awaiting, loop.state)


def _ending(activation: Activation) -> Outcome:
    loop = activation.loop
    if loop.renewal is not None:
        return STILL_BUSY  # what this run has come to is written, then it opens the next one
    if loop.cancelled:
        return Outcome(Status.CANCELLED, state=loop.state, error=undoing.cancelled(loop))
    failure = loop.failure()
    if failure is not None:
        error = undoing.compensated(loop, activation.workflow.failure(failure))
        return Outcome(Status.FAILED, state=loop.state, error=error.encode())
    try:
        result = loop.result_payload(activation.workflow.shape)
    except ValueError as error:
        told = undoing.compensated(loop, Failure.of(error))
        return Outcome(Status.FAILED, state=loop.state, error=told.encode())
    return Outcome(COMPLETED, state=loop.state, result=result)
