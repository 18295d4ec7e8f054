"""How many processes a worker holds, for people."""

from __future__ import annotations

from perdure.kernel.figures import figures_of
from perdure.kernel.worker import WorkerRow
from perdure.limits import LIST_ROWS
from perdure.store.base import Overdue, Search, Store


async def held_by(store: Store, worker: WorkerRow) -> int:
    """How many processes the worker holds: as it tells itself, or else counted up to a thousand."""
    told = figures_of(worker.figures)
    if told.at:
        return told.held
    page = await store.search(Search(overdue=Overdue.OWNED, owner=worker.id, limit=LIST_ROWS))
    return page.in_all


def held_text(held: int, *, counted: bool) -> str:
    """The number; one that was ``counted`` may be cut."""
    return f"{held:,} or more" if counted and held >= LIST_ROWS else f"{held:,}"
