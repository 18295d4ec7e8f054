"""Lingering: a process that waits for others stays in hand for a moment, where something may well come soon.

So do parents, since children answer soon; and processes with a long history that have just heard a message: whoever
takes them in hand again reads and replays all of it, and everybody else in that hand waits meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import microseconds

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation


def heard(activation: Activation) -> None:
    """Its code has received a message in this turn."""
    if activation.number >= limits.LONG_HISTORY_EVENTS:
        activation.patience = activation.at + microseconds(limits.LONG_HISTORY_HOLD_SECONDS)


def until(activation: Activation) -> int:
    """The store's time until which it stays in hand though it waits for nothing but children or messages."""
    outbox = activation.outbox
    if outbox is not None and outbox.out and outbox.patience > activation.patience:
        return outbox.patience
    return activation.patience


def rests(activation: Activation) -> bool:
    """Whether a process is in hand for no other reason than what may come soon."""
    outbox = activation.outbox
    waits = activation.patience > 0 or (outbox is not None and len(outbox.out) > 0)
    return waits and not (activation.in_flight or activation.inputs)
