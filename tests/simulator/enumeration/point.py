"""A point: one call of one node to the store, and what happens to it there; and the fate that deals the blows out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from perdure.testing.simulator.store import SimStore

SIDES = {
    "before": "died before",
    "after": "died after",
    "error-before": "failed before",
    "error-after": "failed after",
}
"""What can happen at a call: the node is killed before it is done, or after; or it lives and the connection is lost."""
KILLS = ("before", "after")


class Point(Struct, frozen=True, order=True):
    """A blow: at the how manieth call of which node, and on which side of it. Written ``worker-1:17:after``."""

    node: str
    call: int
    side: str

    @classmethod
    def read(cls, text: str) -> Point:
        """The point that is written so; raises ValueError."""
        node, call, side = text.split(":")
        if side not in SIDES:
            raise ValueError(f"{side!r} is no side of a call; take one of {', '.join(SIDES)}")
        return cls(node, int(call), side)

    def __str__(self) -> str:
        return f"{self.node}:{self.call}:{self.side}"


class Call(Struct, frozen=True):
    """A call to the store that was made: whose, the how manieth of that node, through which door, in which role."""

    node: str
    number: int
    door: str
    role: str


class Fate:
    """Deals out the blows of one history, and keeps the ``calls`` that are made in it until it is ``over``."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.calls: list[Call] = []
        self.over = False
        self._faults = {(point.node, point.call): SIDES[point.side] for point in points}
        self._counts: Counter[str] = Counter()

    def __call__(self, store: SimStore, door: str) -> str:
        """The fault that the next call of a store meets."""
        if self.over or not store.faulty:
            return ""
        node = store.life.name.partition("#")[0]
        self._counts[node] += 1
        number = self._counts[node]
        self.calls.append(Call(node, number, door, _role(store)))
        return self._faults.get((node, number), "")


def _role(store: SimStore) -> str:
    """Whose call it is: the client's, a sweep's, or that of whatever else a worker does."""
    if not store.life.name.startswith("worker"):
        return "client"
    task = asyncio.current_task()
    return "supervisor" if task is not None and task.get_name().startswith("perdure sweep") else "worker"
