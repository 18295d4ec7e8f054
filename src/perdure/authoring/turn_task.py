"""A turn task: a task of a workflow's code, which knows its branch and counts what it asks for."""

from __future__ import annotations

import asyncio
from typing import Any


class TurnTask(asyncio.Task[Any]):
    """A task whose hash is the number of its creation, so that sets of tasks iterate alike in every life.

    ``branch`` is "" for the root, ".2" for the second task that it created, ".2.1" for that one's first; ``counts``
    counts what was asked for, by name. ``told`` says that it was told to end after the workflow's return.
    """

    __slots__ = ("branch", "children", "counts", "number", "prefix", "told")

    branch: str
    children: int
    counts: dict[str, int]
    number: int
    prefix: str
    told: bool

    def __hash__(self) -> int:
        return self.number

    @property
    def failed_unheard(self) -> bool:
        """Whether it has failed and nobody has retrieved its error."""
        return bool(self._log_traceback)


class TurnFuture(asyncio.Future[Any]):
    """A plain future of a turn; its hash is the number of its creation."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number
