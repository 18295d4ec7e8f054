"""The backend of a store: what its database offers besides the rows. There is one class for each scheme of a URL."""

from __future__ import annotations

from typing import Any, Protocol

from perdure.store.event_log import EventLog
from perdure.store.failover import Lineage
from perdure.store.in_transaction import StoreInTransaction
from perdure.store.step_transaction import StepTransactions


class Backend(Protocol):
    """What a database offers besides its rows; None stands for what it does not offer.

    Callers ask the backend, and never the class or the URL of a store. A wrapper of a store forwards the backend of the
    store behind it; a sealed store seals what goes by way of it.
    """

    @property
    def schema(self) -> int:
        """The newest schema of the database that this Perdure knows."""

    def step_transactions(self) -> StepTransactions | None:
        """The maker of step transactions, not opened yet; None if the database offers none."""

    def in_transaction(self, connection: Any) -> StoreInTransaction:
        """Start and send in the transaction of the caller's connection; raises InvalidInput if that cannot be used."""

    @property
    def event_log(self) -> EventLog:
        """The reader of what happens to all processes, for event streams."""

    def failover(self) -> Lineage:
        """The latest answers of the store, and the processes that a fail-over or a restored backup has set back."""

    @property
    def standing_since(self) -> float | None:
        """Since when the workers' database sessions are known to live (monotonic; infinity: lost); None: unused."""

    async def make_roles(self) -> list[str]:
        """Create the roles of the database or bring them up to date; raises InvalidUrl if it has none, StoreError."""
