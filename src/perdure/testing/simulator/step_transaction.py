"""Step transactions in a history: what such a step writes is kept in one piece with its result, or not at all.

The one connection of a history cannot hold a transaction open while others work. So the step's statements are
collected, and run when its result is kept, in one transaction with it: between a step and the store lie the same
delays, lost answers and deaths as for every other call.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.errors import StoreUnavailable
from perdure.kernel.message import Message
from perdure.store.sqlite import send
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.writer import Transaction
from perdure.store.step_transaction import StepTransactionAnswer, StepTransactionVerdict
from perdure.testing.simulator.server import DOOR

if TYPE_CHECKING:
    from perdure.testing.simulator.store import SimStore

AGAIN_SECONDS = 0.5
"""The wait between two looks whether a commit without an answer was done."""


class SimStepTransactions:
    """Makes transactions on a simulated store. Its steps are async, as on PostgreSQL: there are no threads."""

    blocking = False

    def __init__(self, store: SimStore) -> None:
        self._store = store

    async def take(self) -> SimStepTransaction:
        """A new transaction."""
        return SimStepTransaction(self._store)

    async def close(self) -> None:
        """Nothing is kept."""


class SimConnection:
    """The connection of a step: each statement takes the time of a call, and runs when the result is kept."""

    def __init__(self, store: SimStore) -> None:
        self._store = store
        self.written: list[tuple[str, tuple[Any, ...]]] = []

    async def execute(self, statement: str, *given: Any) -> None:
        """Add a statement of SQLite to the transaction; raises StoreUnavailable if it does not arrive."""
        DOOR.set("statement")
        await self._store.read(lambda connection: None)
        self.written.append((statement, given))


class SimStepTransaction:
    """What each method promises stands in ``store/step_transaction.py``."""

    def __init__(self, store: SimStore) -> None:
        self.connection = SimConnection(store)
        self._store = store
        self._returned = False
        self._abandoned = False

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """See StepTransaction."""
        DOOR.set("begin")
        return not await self._store.read(partial(_known, process, id))

    def mark_returned(self) -> bool:
        """See StepTransaction."""
        self._returned = not self._abandoned
        return self._returned

    def abandon(self) -> bool:
        """See StepTransaction."""
        self._abandoned = not self._returned
        return self._abandoned

    async def keep(self, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        """See StepTransaction."""
        DOOR.set("keep")
        try:
            return await self._store.write(partial(self._kept, message, owner, token))
        except StoreUnavailable:
            if not await self._looked(message):
                raise
            return StepTransactionAnswer(StepTransactionVerdict.KNOWN)

    def _kept(self, message: Message, owner: bytes, token: int, transaction: Transaction) -> StepTransactionAnswer:
        connection = transaction.connection
        if not connection.one("look_at_fence", process=message.process, token=token, owner=owner):
            transaction.void = True
            return StepTransactionAnswer(StepTransactionVerdict.REFUSED)
        for statement, given in self.connection.written:
            connection.raw.execute(statement, given)
        number = send.send(transaction, [message])[0].number
        return StepTransactionAnswer(StepTransactionVerdict.KEPT, number, transaction.now)

    async def _looked(self, message: Message) -> bool:
        """Whether a commit without an answer was done."""
        DOOR.set("begin")
        while True:
            try:
                return await self._store.read(partial(_known, message.process, message.id))
            except StoreUnavailable:
                await asyncio.sleep(AGAIN_SECONDS)

    async def end(self) -> None:
        """See StepTransaction: the collected statements are forgotten."""
        self.connection.written.clear()


def _known(process: bytes, id: bytes, connection: Connection) -> bool:
    return bool(connection.one("result_is_known", process=process, id=id))
