"""The backend of PostgreSQL: step transactions, the caller's own transaction, the workers' sessions, and roles."""

from __future__ import annotations

from typing import Any

from perdure.clock import Computer
from perdure.store.event_log import EventLog
from perdure.store.failover import Lineage
from perdure.store.migrate import steps
from perdure.store.postgres.in_transaction import PostgresInTransaction
from perdure.store.postgres.listen import ListenConnection
from perdure.store.postgres.roles import make_roles
from perdure.store.postgres.step_transaction import PostgresStepTransactions
from perdure.store.postgres.url import address_of


class PostgresBackend:
    """What each method promises stands in ``store/backend.py``."""

    def __init__(
        self, url: str, machine: Computer, lineage: Lineage, presence: ListenConnection, event_log: EventLog
    ) -> None:
        self.schema = len(steps("postgres"))
        self.lineage = lineage
        self._event_log = event_log
        self._url = url
        self._machine = machine
        self._presence = presence

    def step_transactions(self) -> PostgresStepTransactions:
        """See Backend."""
        return PostgresStepTransactions(self._url, self._machine)

    def in_transaction(self, connection: Any) -> PostgresInTransaction:
        """See Backend."""
        return PostgresInTransaction(self._url, connection, self.lineage.place)

    @property
    def event_log(self) -> EventLog:
        """See Backend."""
        return self._event_log

    def failover(self) -> Lineage:
        """See Backend."""
        return self.lineage

    @property
    def standing_since(self) -> float | None:
        """See Backend. Behind a pooler no worker has a session of its own."""
        return self._presence.standing_since

    async def make_roles(self) -> list[str]:
        """See Backend."""
        return await make_roles(address_of(self._url))
