"""Snapshots of all processes that a query fits, a portion at a time: memory is bounded, whatever their number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from perdure.client.finding.finder import Finder
from perdure.errors import StoreUnavailable
from perdure.kernel.stored import why_undecodable
from perdure.store.base import Store
from perdure.store.snapshot import EVENTS_READ, READ_AT_ONCE, Snapshot, portions, snapshot


async def snapshots(store: Store, finder: Finder) -> AsyncIterator[list[Snapshot]]:
    """All processes that the finder finds, a portion at a time; those that are removed meanwhile are left out.

    Raises StoreUnavailable.
    """
    async for page in finder.candidates():
        for portion in portions([one.row for one in page], READ_AT_ONCE, EVENTS_READ):
            read = await asyncio.gather(*(snapshot(store, row) for row in portion))
            yield [within_reach(one) for one in read if one is not None]


def within_reach(one: Snapshot) -> Snapshot:
    """The same; raises StoreUnavailable if a payload of it is out of reach for now, as while an offload is away."""
    for raw in one.payloads:
        if isinstance(why := why_undecodable(raw), StoreUnavailable):
            raise why
    return one
