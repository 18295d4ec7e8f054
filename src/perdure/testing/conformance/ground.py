"""The ground of a store under test: where its database lies, how its time is moved, who else may lock a row."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from perdure.store.base import Store
from perdure.testing.clock import Time


class Ground(Protocol):
    """One empty database for one test.

    ``shared`` says that several stores can be opened on it at once, ``lasting`` that it outlives them,
    ``locks_rows`` that another session can lock a single row (a database with one writer at a time has no such locks),
    ``hints`` that a store is notified of work and ends without polling (behind a pooler it is not), and ``inside`` that
    the database itself holds large payloads.
    """

    shared: bool
    lasting: bool
    locks_rows: bool
    hints: bool
    inside: bool

    @property
    def time(self) -> Time:
        """The time of this database, to be moved."""

    def store(self) -> Store:
        """Another store on the same database, not yet opened."""

    def locked(self, *processes: bytes) -> AbstractAsyncContextManager[None]:
        """Hold the locks of these process rows from a connection that belongs to no store."""

    def damages(self, table: str) -> Sequence[str]:
        """Bad values for the columns of a table, each by a name; only edits by hand write such values."""

    async def damage(self, store: Store, row: bytes, table: str, damage: str) -> bool:
        """Write a bad value, past the open store, into the process's last row there; False if the database refuses.

        Besides those of ``damages`` there are ``missing: the first`` and ``missing: the last``, of events and messages.
        """
