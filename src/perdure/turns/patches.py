"""Patches of a workflow's code: a process that passed there before the change keeps the old way, others go the new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import HistoryMisfit
from perdure.kernel.names import check_name
from perdure.kernel.patch import taken_in
from perdure.turns.current import turn_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.kernel.event import Event
    from perdure.turns.asking import AskingLoop


class Patches:
    """The patches of one process in memory.

    ``recorded`` says in which turn the history took a patch, ``fresh`` which ones were taken since and are not written
    yet. A patch is decided where the code first asks for it; the same decision then holds everywhere.
    """

    __slots__ = ("fresh", "late", "recorded", "ways")

    def __init__(self) -> None:
        self.recorded: dict[str, int] = {}
        self.ways: dict[str, bool] = {}
        self.fresh: list[str] = []
        self.late: str | None = None

    def take_fresh(self) -> list[str]:
        """Take the names of the newly taken patches; the caller records them."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def decide(self, name: str, past: int | None) -> bool:
        """Whether the process takes the patch; ``past`` is the recorded turn that is being replayed, if one is."""
        way = self.ways.get(name)
        if way is None:
            taken = self.recorded.get(name)
            if past is None:
                way = True
                self.fresh.append(name)
            else:
                way = taken is not None and taken <= past
                if taken is not None and not way:
                    self.late = name
            self.ways[name] = way
        return way


def patched(name: str) -> bool:
    """Whether this process takes the change called ``name``: True unless it had passed here before the change.

    The answer is recorded, so every replay agrees, and it is the same wherever the workflow asks for that name.
    Raises InvalidKey, WorkflowMisuse.
    """
    loop = turn_for("patched")
    check_name(name, "the name of the patch")
    return patches_of(loop).decide(name, loop.past)


def patches_of(loop: AskingLoop) -> Patches:
    """The patches of a process in memory."""
    if loop.patches is None:
        loop.patches = Patches()
        loop.notes = True
    return loop.patches


def recall(loop: AskingLoop, history: Sequence[Event]) -> None:
    """Tell the code which patches the history took."""
    recorded = taken_in(history)
    if recorded:
        patches_of(loop).recorded = recorded


def check(loop: AskingLoop) -> None:
    """Raise HistoryMisfit if the code asked for a patch in an earlier turn than the history took it in."""
    patches = loop.patches
    if patches is not None and patches.late is not None:
        turn = patches.recorded[patches.late]
        raise HistoryMisfit(
            f"that patch {patches.late!r} was taken in turn {turn}",
            "asks for it in an earlier turn, which went the old way. Give the second change a name of its own",
        )
