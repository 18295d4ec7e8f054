"""A step transaction: one transaction for a step's effect and its result; both are there, or neither.

The step writes by the transaction's connection. Then its result is recorded there, as a message to the step's own
process, if that is still in the same hands, and both are committed. Nothing here decides whether a step is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from perdure.clock import Machine
from perdure.errors import PayloadTooLarge
from perdure.kernel.message import Message
from perdure.limits import INSIDE_PAYLOAD_BYTES
from perdure.store.base import Store


class StepTransactionVerdict(StrEnum):
    """``KEPT``: effect and result are committed. Else nothing of this attempt is there.

    ``KNOWN``: another attempt's result is. ``REFUSED``: the process is in other hands, a late answer.
    """

    KEPT = "kept"
    KNOWN = "known"
    REFUSED = "refused"


class StepTransactionAnswer(Struct, frozen=True, gc=False):
    """What became of a transaction: ``number`` is that of the result's message, ``at`` the store's time."""

    verdict: StepTransactionVerdict
    number: int = 0
    at: int = 0


class StepTransaction(Protocol):
    """One transaction. Unless :meth:`keep` answers ``KEPT``, nothing of it is there; :meth:`end` follows always."""

    connection: Any

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result with that ``id`` is there already: then the answer is False.

        Raises StoreUnavailable. ``patience`` is how many seconds may pass between two statements of the step.
        """

    def mark_returned(self) -> bool:
        """The step has returned: from now on nobody can take its transaction back. False if somebody has."""

    def abandon(self) -> bool:
        """Roll the transaction back, from another thread too, whatever the step does. False: it is too late."""

    async def keep(self, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        """Record the result and commit, if the process has still that owner and token; never cancelled."""

    async def end(self) -> None:
        """Roll back what is open and give the connection back."""


class StepTransactions(Protocol):
    """Makes step transactions on one store. Where it is ``blocking`` nothing waits, and a step runs in a thread."""

    kind: str
    blocking: bool

    async def take(self) -> StepTransaction:
        """A new transaction, as soon as there is a connection for it; raises StoreUnavailable."""

    async def close(self) -> None:
        """Let go of every connection."""


def step_transactions_of(store: Store, machine: Machine) -> StepTransactions | None:
    """What makes step transactions on that store, or None where there can be none: its transactions are its own."""
    from perdure.store.sealed.store import SealedStore

    if isinstance(store, SealedStore):
        return step_transactions_of(store.store, machine)
    if (own := getattr(store, "step_transactions", None)) is not None:  # a simulated store is no file
        made: StepTransactions = own()
        return made
    if store.url.startswith("sqlite:"):
        from perdure.store.sqlite.step_transaction import SqliteStepTransactions

        return SqliteStepTransactions(store.url, machine) if ":memory:" not in store.url else None
    if store.url.startswith("postgres"):
        from perdure.store.postgres.step_transaction import PostgresStepTransactions

        return PostgresStepTransactions(store.url, machine)
    return None


def sealing_of(store: Store) -> Callable[[Message], Message]:
    """How results are sealed for that store. They stay in the database: no transaction holds an offload."""
    from perdure.store.sealed.records import RecordSealer
    from perdure.store.sealed.store import SealedStore

    if not isinstance(store, SealedStore):
        return lambda message: message
    chain = store.seal

    def seal(message: Message) -> Message:
        size = len(message.payload)
        if size > INSIDE_PAYLOAD_BYTES:
            raise PayloadTooLarge(
                f"the result has {size:,} bytes; that of a step with a transaction stays in the database, and may have "
                f"{INSIDE_PAYLOAD_BYTES:,}. Let the step store it, and return its name."
            )
        return RecordSealer(chain, None).message(message)

    return seal
