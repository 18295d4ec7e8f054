"""A patch: a change of a workflow's code that a process takes, or not, for good; its history says which."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, json

from perdure.kernel.event import Event, EventType
from perdure.kernel.stored import reader


class TakenPatch(Struct, frozen=True):
    """The payload of a ``PATCHED`` event: the turn in which the code took the patch, 0 for the first."""

    turn: int

    def encode(self) -> bytes:
        """The JSON that is stored."""
        return json.encode(self)


_decode = reader(TakenPatch, "a recorded patch")

SAYS_NOTHING_OF_TURNS = frozenset(
    {
        EventType.RUN_OPENED, EventType.REVIVED, EventType.HELD, EventType.RESUMED, EventType.BROKEN,
        EventType.DEADLINE_SET, EventType.RUN_RETRIED, EventType.KEY_RELEASED, EventType.VERSION_MOVED,
        EventType.PRIORITY_SET, EventType.ATTRIBUTES_EDITED, EventType.FIELDS_EDITED,
    }
)  # fmt: skip
"""Events that a history may have before the first turn, or a repair, was run, or before its commit was applied."""


def taken_in(history: Sequence[Event]) -> dict[str, int]:
    """The patches that the history took, each with the turn in which it did so first."""
    taken: dict[str, int] = {}
    for event in history:
        if event.turn == 0 and event.type is EventType.PATCHED:
            turn = _decode(event.payload or b'{"turn":0}').turn
            taken[event.name] = min(turn, taken.get(event.name, turn))
    return taken


def has_passed(history: Sequence[Event]) -> bool:
    """Whether turns are on record: what the code decided in them must not be decided again.

    A repair is a beginning: what came before it does not count, since the method that it has chosen runs in no turn of
    before.
    """
    for event in reversed(history):
        if event.type is EventType.REPAIRED:
            return False
        if event.type not in SAYS_NOTHING_OF_TURNS:
            return True
    return False
