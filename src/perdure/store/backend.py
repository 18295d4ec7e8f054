"""The backend of a store: what its database offers beside the rows. There is one class for each scheme of a URL."""

from __future__ import annotations

from typing import Any, Protocol

from perdure.store.failover import Lineage
from perdure.store.in_transaction import StoreInTransaction
from perdure.store.step_transaction import StepTransactions


class Backend(Protocol):
    """What a database offers beside its rows. What it has not got is None.

    Callers ask the backend, and never the class or the URL of a store. A wrapper of a store forwards the backend of the
    store behind it; a sealed store seals what goes by way of it.
    """

    @property
    def schema(self) -> int:
        """The newest schema of the database that this Perdure knows."""

    def step_transactions(self) -> StepTransactions | None:
        """The transactions that are lent to steps, not opened yet; None if the store can share none."""

    def in_transaction(self, connection: Any) -> StoreInTransaction:
        """Start and send inside the transaction of a caller's connection; raises InvalidInput if it cannot be used."""

    def failover(self) -> Lineage:
        """What the store was told, and what a fail-over or a restored backup has set back of it."""

    @property
    def standing_since(self) -> float | None:
        """Since when the sessions of workers are known to stand (monotonic; infinity: lost); None: they need none."""

    async def make_roles(self) -> list[str]:
        """Create the roles of the database or bring them up to date; raises InvalidUrl if it has none, StoreError."""
