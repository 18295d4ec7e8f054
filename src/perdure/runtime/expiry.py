"""Expiry: what a worker does with a process in hand whose deadline has passed; a sweep ends it as failed.

Nothing of it counts any more, but for a task with ``total_force=False``: the attempt that is at work may still end, and
none begins after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.authoring.task import may_end_late
from perdure.clock import SECOND

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation
    from perdure.runtime.scheduler import Scheduler


def passed(activation: Activation, now: int) -> bool:
    """Whether the deadline of a process in hand has passed."""
    deadline = activation.process.deadline
    return deadline is not None and deadline <= now


def spared(activation: Activation) -> bool:
    """Whether it may go on nevertheless: its attempt at work may end, and nobody has asked it to end by that time."""
    return bool(activation.in_flight) and activation.until is None and may_end_late(activation.process)


def lapsed(scheduler: Scheduler, activation: Activation) -> bool:
    """Let go of a process if we hear so late that it is ours that its lease is over: nobody acts on that.

    By the store it may last: what we asked for was carried out long after it had been sent.
    """
    if activation.lease_end > scheduler.time.monotonic():
        return False
    scheduler.telemetry.count("leases_lost")
    scheduler.drop(activation)
    scheduler.strayed()
    return True


def too_late(scheduler: Scheduler, activation: Activation) -> bool:
    """Let go at once of a process that was claimed after its deadline, or too slowly: its code is not run any more."""
    if lapsed(scheduler, activation):
        return True
    if not passed(activation, scheduler.time.now()):
        return False
    if activation.process.inbox > activation.process.seen:  # handed back it would be due now: claimed again, for ever
        scheduler.drop(activation)
    else:
        scheduler.hand_back(activation, SECOND)  # the sweep that ends it comes sooner
    return True


def let_go(scheduler: Scheduler) -> None:
    """Let go of all that is over its deadline: at work or not, nothing of it counts any more."""
    now = scheduler.time.now()
    for activation in [one for one in scheduler.hand.values() if passed(one, now) and not spared(one)]:
        if may_end_late(activation.process):
            scheduler.hand_back(activation)  # a sweep would wait for the end of its lease
        else:
            scheduler.drop(activation)
