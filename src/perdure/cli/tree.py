"""The tree of a process: its children and queued steps, and theirs, as they are now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from rich.text import Text
from rich.tree import Tree

from perdure.cli import output, table, text
from perdure.cli.options import DEFAULT_URL, Json, ProcessArgument, Url, connected, present, process_named, reference_to
from perdure.client.view import ProcessView
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.child import begun, is_task
from perdure.kernel.event import EventType
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Process
from perdure.limits import LIST_ROWS
from perdure.store.base import Search


class Branch:
    """One process in the tree: ``slot`` is the place at which its parent's code asked for it."""

    def __init__(self, slot: str, view: ProcessView) -> None:
        self.slot = slot
        self.view = view
        self.branches: list[Branch] = []

    def draw(self, now: datetime, onto: Tree | None = None) -> Tree:
        """The branch and all below it, for people."""
        view = self.view
        line = Text(f"{self.slot}  ").append_text(table.status(view.status))
        line.append(f"  {_times(view, now)}")
        if moves := table.next_move(view, now):
            line.append(f"  {moves}", style="dim")
        tree = Tree(line) if onto is None else onto.add(line)
        for branch in self.branches:
            branch.draw(now, tree)
        return tree

    def all_views(self) -> Iterator[ProcessView]:
        """The process of the branch and all below it."""
        yield self.view
        for branch in self.branches:
            yield from branch.all_views()

    def summary(self) -> str:
        """How many processes the branch has in each status: ``7 processes: 1 running, 6 completed``."""
        counts = Counter(view.status.value for view in self.all_views())
        told = ", ".join(f"{counts[status]:,} {status}" for status in table.in_order(counts))
        return f"{counts.total():,} process{'' if counts.total() == 1 else 'es'}: {told}"

    def as_json(self) -> dict[str, Any]:
        """The branch and all below it, for programs."""
        told: dict[str, Any] = {"asked_as": self.slot, **msgspec.to_builtins(self.view, enc_hook=output.carried)}
        return told | {"children": [branch.as_json() for branch in self.branches]}


async def tree(process: ProcessArgument, *, limit: int = 200, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show a process with its children and queued steps, and theirs.

    Each has its status and times; the last line counts them by status. With
    --json "more" is how many were seen at least beyond --limit.

    Parameters
    ----------
    limit
        How many processes to show at most.
    """
    if not 1 <= limit <= LIST_ROWS:
        raise InvalidInput(f"--limit is {limit}. Give a number from 1 to {LIST_ROWS:,}.")
    async with connected(url) as engine:
        root, more = await _grown(engine, await process_named(engine, process), limit)
        if json:
            output.show_json(root.as_json() | {"more": more})
            return
        output.show(root.draw(await present(engine)), "", root.summary())
        if more:
            output.show(f"and at least {more} more: --limit {LIST_ROWS}, or `perdure tree` of one of them")


async def _grown(engine: Engine, row: Process, limit: int) -> tuple[Branch, int]:
    """The tree level by level, of so many processes at most, and how many more were seen."""
    [view] = await engine.list(Search(ids=(row.id,)))
    root = Branch(reference_to(row), view)
    level, left, more = [root], limit - 1, 0
    while level:
        below: list[Branch] = []
        for parent in level:
            if is_task(parent.view.kind):
                continue
            slots = await _children(engine, parent, left + 1)
            more += max(0, len(slots) - left)
            shown = dict(list(slots.items())[:left])
            found = await engine.list(Search(ids=tuple(map(id_bytes, shown)), limit=len(shown))) if shown else ()
            rows = {view.id: view for view in found}
            parent.branches = [Branch(slot, rows[id]) for id, slot in shown.items() if id in rows]
            left -= len(shown)
            below += parent.branches
        level = below
    return root, more


async def _children(engine: Engine, parent: Branch, most: int) -> dict[str, str]:
    """The ids of those that a process has started in its present run, with the places that asked for them."""
    events = await engine.store.history(
        id_bytes(parent.view.id), parent.view.run, limit=most, types=(EventType.CHILD_STARTED,)
    )
    return {begun(event).id: f"{event.name}:{event.place}" for event in events}


def _times(view: ProcessView, now: datetime) -> str:
    """When it began and, if it has ended, how long it took."""
    if view.created_at is None:
        return ""
    if view.status.value in ("completed", "failed", "cancelled") and view.changed_at is not None:
        return f"took {text.span((view.changed_at - view.created_at).total_seconds())}"
    return f"began {text.when(view.created_at, now)}"
