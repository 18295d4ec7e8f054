"""A termination: a parent's order that its child ends with it, which a worker carries out without the child's code."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import json

from perdure.errors import StoreError
from perdure.kernel import transition
from perdure.kernel.commit import CommitAnswer, Verdict
from perdure.kernel.lease import Claimed
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.opening import opening_of
from perdure.kernel.transition import Sender

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation
    from perdure.runtime.scheduler import Scheduler

log = logging.getLogger("perdure")


def ordered(messages: Sequence[Message], since: int) -> Message | None:
    """The order among the messages with higher numbers than ``since``, if there is one."""
    for message in messages:
        if message.type is MessageType.TERMINATE and message.number > since:
            return message
    return None


def carried_out(scheduler: Scheduler, activation: Activation, claimed: Claimed) -> bool:
    """Whether a claimed process was to end: then it is ended before its code has run, and its own children hear of it.

    An order that was meant for an earlier run counts no more.
    """
    order = ordered(claimed.messages, max(claimed.process.seen, opening_of(claimed.events).void))
    if order is None:
        return False
    scheduler.drop(activation)
    sender = json.decode(order.sender or b"{}", type=Sender)
    commit = transition.terminated(claimed.process, sender, claimed.events, now=scheduler.time.now())

    def answered(answer: CommitAnswer | StoreError) -> None:
        # If we die here it is ended, or its lease lapses and whoever takes it next finds the order again.
        if isinstance(answer, StoreError):
            log.error("process %s could not be ended with its parent: %s", id_text(order.process), answer)
        elif answer.verdict is Verdict.APPLIED:
            scheduler.telemetry.counters["cancelled"] += 1
            scheduler.ended(commit.after, scheduler.committer.sent)
            scheduler.posted(commit)

    scheduler.committer.commit(commit, answered)
    return True
