"""An unreadable process: something of it cannot be opened, is missing or unknown here, so that it must not be replayed.

It alone is let go: parked as broken with the reason, put off while what it needs cannot be reached, or left to a newer
worker, see :mod:`handover`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import microseconds
from perdure.errors import DamagedRecord, HistoryMisfit, NewerRecord, PerdureError, StoreUnavailable
from perdure.kernel.event import Event
from perdure.kernel.integrity import lost, strange
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.unopened import first_trouble
from perdure.runtime.handover import Handover, took_what_is_unknown

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation
    from perdure.runtime.scheduler import Scheduler

log = logging.getLogger("perdure")


class Unreadable:
    """Lets go of the processes that a scheduler has claimed and cannot replay."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.handover = Handover(scheduler)

    def let_go(self, activation: Activation, trouble: PerdureError) -> None:
        """Let a process go of which something cannot be read."""
        if isinstance(trouble, StoreUnavailable):
            log.warning("a process is put off for %g s: %s", limits.PUT_OFF_SECONDS, trouble)
            self._put_off(activation, limits.PUT_OFF_SECONDS)
        elif isinstance(trouble, NewerRecord) and self.handover.schema_ahead:
            self._hand_over(activation, trouble)
        else:
            self._scheduler.park(activation, trouble)

    def among(self, activation: Activation, messages: Sequence[Message], counted: int) -> bool:
        """Let a process go if what was read for it cannot be delivered; ``counted`` are the messages it waited for."""
        trouble = first_trouble(message.payload for message in messages) or strange(activation.process, messages)
        if trouble is None and not messages and counted > activation.heard:
            trouble = lost(activation.process, activation.heard, counted)
        if trouble is not None:
            self.let_go(activation, trouble)
        return trouble is not None

    def hear(self, activation: Activation, messages: Sequence[Message]) -> bool:
        """Put messages into the next turn of a process, or let it go if one of them is missing."""
        try:
            self._scheduler.telemetry.counters["messages"] += activation.hear(messages)
        except DamagedRecord as error:
            self.let_go(activation, error)
            return False
        return True

    def misfit(self, activation: Activation, history: Sequence[Event], error: Exception) -> None:
        """Let a process go whose history could not be replayed: perhaps our code is the old one of a deployment."""
        if isinstance(error, HistoryMisfit) and took_what_is_unknown(activation, history):
            self._hand_over(activation, error)
        else:
            self._scheduler.park(activation, error)

    def _hand_over(self, activation: Activation, trouble: PerdureError) -> None:
        seconds = self.handover.wait(activation.process)
        if seconds is None:
            self._scheduler.park(activation, trouble)
            return
        self._scheduler.telemetry.count("processes_handed_over")
        id = id_text(activation.process.id)
        log.warning("process %s is left to a newer worker for %g s: %s", id, seconds, trouble)
        process = activation.process
        if self.handover.lets_by((process.kind, process.code)):  # with messages unheard it is due now, for others
            self._scheduler.hand_back(activation, microseconds(seconds))
        else:
            self._put_off(activation, seconds)

    def _put_off(self, activation: Activation, seconds: float) -> None:
        process = activation.process
        if process.inbox > process.seen:  # handed back it would be due now: claimed again, for ever
            self._scheduler.drop(activation)  # its lease ends, and whoever claims it then sees further
        else:
            self._scheduler.hand_back(activation, microseconds(seconds))
