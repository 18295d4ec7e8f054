"""The backend of a sealed store: payloads in the transactions of callers and steps are sealed, and stay inside.

An offload takes no part in a transaction of the database: a payload that is too large to stay inside is refused.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from perdure import limits
from perdure.errors import PayloadTooLarge
from perdure.kernel.commit import Start, StartAnswer, StartVerdict
from perdure.kernel.message import Message, SendAnswer
from perdure.store.backend import Backend
from perdure.store.failover import Lineage
from perdure.store.in_transaction import StoreInTransaction
from perdure.store.sealed import seal
from perdure.store.sealed.blob import Blobs
from perdure.store.sealed.event_log import SealedEventLog
from perdure.store.sealed.records import RecordSealer
from perdure.store.sealed.seal import Seal
from perdure.store.step_transaction import StepTransaction, StepTransactionAnswer, StepTransactions

RecordT = TypeVar("RecordT", Start, Message)


class SealedBackend:
    """The backend of the database behind it, with payloads sealed; for promises see ``store/backend.py``."""

    def __init__(self, backend: Backend, chain: Seal, blobs: Blobs | None) -> None:
        self._backend = backend
        self._chain = chain
        self._blobs = blobs

    @property
    def schema(self) -> int:
        """See Backend."""
        return self._backend.schema

    def step_transactions(self) -> SealedStepTransactions | None:
        """See Backend."""
        step_transactions = self._backend.step_transactions()
        return None if step_transactions is None else SealedStepTransactions(step_transactions, self._chain)

    def in_transaction(self, connection: Any) -> SealedInTransaction:
        """See Backend."""
        return SealedInTransaction(self._backend.in_transaction(connection), self._chain, self._blobs)

    @property
    def event_log(self) -> SealedEventLog:
        """See Backend."""
        return SealedEventLog(self._backend.event_log, self._chain, self._blobs)

    def failover(self) -> Lineage:
        """See Backend."""
        return self._backend.failover()

    @property
    def standing_since(self) -> float | None:
        """See Backend."""
        return self._backend.standing_since

    async def make_roles(self) -> list[str]:
        """See Backend."""
        return await self._backend.make_roles()


class SealedInTransaction(Struct, frozen=True):
    """Starts and signals in the caller's transaction, sealed by codecs; a payload for the offload is refused."""

    inside: StoreInTransaction
    chain: Seal
    blobs: Blobs | None

    @property
    def blocking(self) -> bool:
        """Whether the calls of the connection block."""
        return self.inside.blocking

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process. A conflict is checked: the same input may have been sealed with an earlier key."""
        answer = await self.inside.start(self._kept_inside(RecordSealer(self.chain, None).start(start)))
        if answer.verdict is StartVerdict.CONFLICT:
            for chain in self.chain.former():
                other = await self.inside.start(RecordSealer(chain, None).start(start))
                if other.verdict is not StartVerdict.CONFLICT:
                    return other
        return answer

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox."""
        return await self.inside.send(self._kept_inside(RecordSealer(self.chain, None).message(message)))

    def _kept_inside(self, record: RecordT) -> RecordT:
        if self.blobs is not None and (size := seal.weight(record)) > self.blobs.offload.above:
            raise PayloadTooLarge(
                f"a payload of {size:,} bytes belongs in the offload, which takes no part in a transaction. "
                "Pass a smaller one, or start and signal outside of the transaction."
            )
        return record


class SealedStepTransactions:
    """What each method promises stands in ``store/step_transaction.py``."""

    def __init__(self, step_transactions: StepTransactions, chain: Seal) -> None:
        self.blocking = step_transactions.blocking
        self._step_transactions = step_transactions
        self._chain = chain

    async def take(self) -> SealedStepTransaction:
        """Another transaction, as soon as there is a connection for it; raises StoreUnavailable."""
        return SealedStepTransaction(await self._step_transactions.take(), self._chain)

    async def close(self) -> None:
        """Let go of every connection."""
        await self._step_transactions.close()


class SealedStepTransaction(Struct, frozen=True):
    """A step's transaction whose result is sealed before it is kept; for the rest it does what the bare one does."""

    bare: StepTransaction
    chain: Seal

    @property
    def connection(self) -> Any:
        """The connection through which the step writes."""
        return self.bare.connection

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result is there already."""
        return await self.bare.begin(process, id, patience)

    def mark_returned(self) -> bool:
        """The step has returned."""
        return self.bare.mark_returned()

    def abandon(self) -> bool:
        """Roll it back, unless the step has returned."""
        return self.bare.abandon()

    async def keep(self, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        """Seal the result, record it and commit; raises PayloadTooLarge: a result stays in the database."""
        size = len(message.payload)
        if size > limits.INSIDE_PAYLOAD_BYTES:
            raise PayloadTooLarge(
                f"the result has {size:,} bytes. A step with a transaction keeps its result in the database, which "
                f"allows {limits.INSIDE_PAYLOAD_BYTES:,}. Let the step store the data, and return its name."
            )
        return await self.bare.keep(RecordSealer(self.chain, None).message(message), owner, token)

    async def end(self) -> None:
        """Roll back what is open and give the connection back."""
        await self.bare.end()
