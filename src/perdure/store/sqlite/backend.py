"""The backend of SQLite: transactions for steps, and the caller's own, on the same file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.clock import Computer
from perdure.errors import InvalidUrl
from perdure.store.event_log import EventLog
from perdure.store.failover import Lineage
from perdure.store.sqlite.file import read_url
from perdure.store.sqlite.schema import migrations
from perdure.store.sqlite.step_transaction import SqliteStepTransactions
from perdure.store.step_transaction import StepTransactions

if TYPE_CHECKING:
    from perdure.store.sqlite.in_transaction import SqliteInTransaction


class SqliteBackend:
    """What each method promises stands in ``store/backend.py``."""

    def __init__(self, url: str, machine: Computer, lineage: Lineage, event_log: EventLog) -> None:
        self.schema = len(migrations())
        self.lineage = lineage
        self._event_log = event_log
        self._url = url
        self._machine = machine

    def step_transactions(self) -> StepTransactions | None:
        """See Backend. A database in memory has one connection, which is the store's."""
        return None if read_url(self._url).path is None else SqliteStepTransactions(self._url, self._machine)

    def in_transaction(self, connection: Any) -> SqliteInTransaction:
        """See Backend."""
        from perdure.store.sqlite.in_transaction import SqliteInTransaction

        return SqliteInTransaction(self._url, connection, self._machine)

    @property
    def event_log(self) -> EventLog:
        """See Backend."""
        return self._event_log

    def failover(self) -> Lineage:
        """See Backend."""
        return self.lineage

    @property
    def standing_since(self) -> float | None:
        """See Backend. A file lock is lost only when its OS process ends."""
        return None

    async def make_roles(self) -> list[str]:
        """See Backend."""
        raise InvalidUrl("only PostgreSQL has roles; who may read and write a SQLite file may do everything")
