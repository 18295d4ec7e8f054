"""A turn task: a task of a workflow's code, which knows its branch and counts what it asks for."""

from __future__ import annotations

import asyncio
from typing import Any


class TurnTask(asyncio.Task[Any]):
    """A task whose hash is the number of its creation, so that sets of tasks iterate alike in every life.

    ``branch`` is "" for the root, ".2" for the second task that it created, ".2.1" for that one's first.
    """

    __slots__ = ("branch", "children", "counts", "number", "prefix", "told")

    number: int
    branch: str
    prefix: str
    children: int
    counts: dict[str, int]
    told: bool

    def __hash__(self) -> int:
        return self.number


class TurnFuture(asyncio.Future[Any]):
    """A plain future of a turn; its hash is the number of its creation."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number
