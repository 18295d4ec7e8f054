"""An opening: the first event of a later run, which says who opened it and what it keeps of the run before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, json

from perdure.kernel.event import Event, EventType
from perdure.kernel.recorded import reader


class Opening(Struct, frozen=True, omit_defaults=True):
    """The payload of a ``RUN_OPENED`` event.

    ``done`` is what was done (``retried``, ``restarted``, …), ``kept`` how many events were copied. ``origins`` and
    ``fresh`` say in which run a step was first asked for, by the number of the last event before and by its own name;
    ``void`` is the number of the last message whose wish to cancel counts no more; ``seed`` the run from which the
    process's chance comes, if not the first. ``not_undone`` are the steps dropped whose undo is owed for ever.

    A run that the process itself opened has ``input`` of its own; its first ``letters`` messages were heard and not
    received before, and ``seen`` is the highest number heard by then.
    """

    from_run: int
    kept: int
    origins: tuple[tuple[int, int], ...] = ()
    sender: dict[str, str] = {}
    done: str = "retried"
    fresh: dict[str, int] = {}
    void: int = 0
    seed: int = 0
    not_undone: tuple[str, ...] = ()
    input: Raw = Raw(b"")
    letters: int = 0
    seen: int = 0

    def encode(self) -> bytes:
        """The JSON that is stored."""
        return json.encode(self)

    def origin(self, slot: str, last: int, run: int) -> int:
        """In which run a step (``charge:1``) was first asked for, after event ``last``; ``run`` is the present one."""
        first = next((first for upto, first in self.origins if last <= upto), run)
        return max(first, self.fresh.get(slot, 0))


CONTINUED = "continued as new"
"""What is said of a run that the process opened by itself."""

FIRST = Opening(0, 0)
"""Stands for what opened the first run, which is no event."""


def same_beginning(before: Opening) -> dict[str, Any]:
    """What every later run of the same beginning says alike: the arguments, and the messages that came with them."""
    return {"input": before.input, "letters": before.letters, "seen": before.seen}


_decode = reader(Opening, "what opened this run")


def opening_of(history: Sequence[Event]) -> Opening:
    """What opened the run of this history."""
    if not history or history[0].type is not EventType.RUN_OPENED or history[0].payload is None:
        return FIRST
    return _decode(history[0].payload)


def moved(origins: Sequence[tuple[int, int]], numbers: Mapping[int, int], run: int) -> tuple[tuple[int, int], ...]:
    """The origins of a run that keeps events of run ``run``, which get new ``numbers``."""
    before = [(max((new for old, new in numbers.items() if old <= last), default=1), first) for last, first in origins]
    return (*before, (len(numbers) + 1, run))
