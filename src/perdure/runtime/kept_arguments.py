"""Kept arguments: those of steps that keep them go into the history, each once, with the turn that asks for the step.

So they are written by the commit that lets the step begin, and are known while it runs. Replay does not read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.kernel.event import Event, EventType

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.turns.ask import Ask


def note(instance: Instance, asks: Iterable[Ask[Any]], history: Iterable[Event] = ()) -> None:
    """Write down the arguments of those steps that keep them, but for what the history holds already.

    A turn keeps KEPT_ARGUMENTS_BYTES at most: of a step whose arguments do not fit in, only the digest is known.
    """
    known = {(one.name, one.place): one.digest for one in history if one.type is EventType.ARGUMENTS_KEPT}
    left = limits.KEPT_ARGUMENTS_BYTES
    for ask in asks:
        if not ask.step.keep_arguments or known.get(ask.slot) == ask.digest or len(ask.raw) > left:
            continue
        left -= len(ask.raw)
        instance.note(EventType.ARGUMENTS_KEPT, instance.at, ask.raw, name=ask.name, place=ask.place, digest=ask.digest)
