"""Patches in hand: what the history must know of the ways that a process has taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.kernel.event import EventType
from perdure.kernel.patch import Taken

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation


def note_taken(activation: Activation) -> None:
    """Write down the patches just taken, before anything that follows from them is released."""
    patches = activation.loop.patches
    if patches is None:
        return
    for name in patches.fresh:
        activation.note(EventType.PATCHED, activation.at, Taken(activation.turns).encode(), name=name)
    patches.fresh.clear()
