"""Families: which processes that have ended are kept, since their parents have not yet received how they ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perdure import limits
from perdure.errors import PerdureError, StoreUnavailable
from perdure.kernel.admission import open_children
from perdure.kernel.process import Process
from perdure.store.base import Search, Store


async def awaited(store: Store, rows: Sequence[Process]) -> set[bytes]:
    """The ids of those for which an unfinished parent still waits. Raises StoreUnavailable.

    Where a parent's history cannot be read, it counts as waiting for all.
    """
    children: dict[bytes, set[bytes]] = defaultdict(set)
    for row in rows:
        if row.parent is not None:
            children[row.parent].add(row.id)
    found: set[bytes] = set()
    ids = list(children)
    for first in range(0, len(ids), limits.LIST_ROWS):
        portion = tuple(ids[first : first + limits.LIST_ROWS])
        for parent in await store.search(Search(ids=portion, limit=len(portion))):
            if not parent.final:
                found |= await _open(store, parent, children[parent.id])
    return found


async def _open(store: Store, parent: Process, children: set[bytes]) -> set[bytes]:
    """Those of the children that have not answered the parent."""
    try:
        known, every = open_children(await store.history(parent.id, parent.run, limit=parent.events))
    except StoreUnavailable:
        raise
    except PerdureError:
        return children
    return children.intersection(known) if every else children
