"""Whole rows: processes read by their ids, with what is kept outside of the database, which a list does not fetch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from perdure.kernel.process import Process
from perdure.kernel.stored import Undecodable
from perdure.limits import LIST_ROWS
from perdure.store.base import Search, Store

T = TypeVar("T")


async def rows_of(store: Store, ids: Sequence[bytes]) -> list[Process]:
    """The rows of these processes, as far as they exist."""
    return [row for some in cut(ids, LIST_ROWS) for row in await store.search(Search(ids=some, limit=len(some)))]


async def whole(store: Store, rows: Sequence[Process]) -> Sequence[Process]:
    """The rows of a list, read again by id where the state or the progress was not opened; one that is gone stays.

    What cannot be opened then either stays Undecodable: to decide by it raises its error.
    """
    again = await rows_of(store, [row.id for row in rows if _lacks(row)])
    found = {row.id: row for row in again}
    return [found.get(row.id, row) for row in rows] if found else rows


def _lacks(row: Process) -> bool:
    return isinstance(row.state, Undecodable) or isinstance(row.progress, Undecodable)


def cut(every: Iterable[T], size: int) -> list[tuple[T, ...]]:
    """A sequence in parts of at most that size."""
    rest = iter(every)
    return list(iter(lambda: tuple(islice(rest, size)), ()))
