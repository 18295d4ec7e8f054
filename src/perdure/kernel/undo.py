"""An undo: the step that takes back what another has done; read from a history, without the process's code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perdure.kernel.event import Event, EventType
from perdure.limits import UNDO_ROWS

_MARK = "undo/"
_SLOT = r"(.+?):((?:\.[0-9.]+:)?[0-9]+|undo/.+)"


def undo_place(name: str, place: str) -> str:
    """The place of the undo of the step at a place: it names that step, so it does not depend on the order of undos."""
    return f"{_MARK}{name}:{place}"


def name_and_place(slot: str) -> tuple[str, str] | None:
    """Name and place of the step that is written as both (``charge:1``, in a branch ``charge:.2:1``), else None.

    A name may hold colons too.
    """
    found = re.fullmatch(_SLOT, slot, re.DOTALL)
    return None if found is None else (found[1], found[2])


def undoes(place: str) -> str | None:
    """Which step (``charge:1``: name and place) the step at this place undoes, or None if it is no undo."""
    return place[len(_MARK) :] if place.startswith(_MARK) else None


def owed(history: Iterable[Event]) -> list[str]:
    """The steps that were asked for, whose undo is known and has not run, the last one first."""
    left: dict[tuple[str, str], str] = {}
    for event in _of_undos(history):
        if event.type is EventType.UNDO_OWED:
            left[event.name, event.place] = event.place.removeprefix(_MARK)
        elif event.type is EventType.STEP_COMPLETED:
            left.pop((event.name, event.place), None)
    return list(reversed(left.values()))


def undone(history: Iterable[Event]) -> list[str]:
    """The steps that were undone, in that order."""
    done = [event for event in _of_undos(history) if event.type is EventType.STEP_COMPLETED]
    return [event.place.removeprefix(_MARK) for event in done]


def _of_undos(history: Iterable[Event]) -> list[Event]:
    return [event for event in history if event.place.startswith(_MARK)]


def listed(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps as an error carries them; those beyond its limit are only counted."""
    if len(steps) <= UNDO_ROWS:
        return tuple(steps)
    return (*steps[:UNDO_ROWS], f"… and {len(steps) - UNDO_ROWS} more")
