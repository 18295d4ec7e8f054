"""A step transaction: one transaction for a step's effect and its result; both are there, or neither.

The step writes through the transaction's connection. Then its result is recorded there, as a message to the step's own
process, if the same worker still holds that process, and both are committed. Nothing here decides about retries.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from perdure.kernel.message import Message


class StepTransactionVerdict(StrEnum):
    """``KEPT``: effect and result are committed. Otherwise nothing of this attempt is stored.

    ``KNOWN``: another attempt's result is stored. ``REFUSED``: another worker holds the process; the answer is late.
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
    """One transaction. Unless :meth:`keep` answers ``KEPT``, nothing of it is stored; always call :meth:`end`."""

    @property
    def connection(self) -> Any:
        """The connection through which the step writes."""

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result with that ``id`` is there already: then the answer is False.

        Raises StoreUnavailable. ``patience`` is how many seconds may pass between two statements of the step.
        """

    def mark_returned(self) -> bool:
        """Note that the step has returned: its transaction cannot be abandoned any more. False if it has been."""

    def abandon(self) -> bool:
        """Roll the transaction back, from another thread too, whatever the step does. False: it is too late."""

    async def keep(self, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        """Record the result and commit, if the process still has that owner and token; never cancelled."""

    async def end(self) -> None:
        """Roll back what is open and give the connection back."""


class StepTransactions(Protocol):
    """Makes step transactions on one store. If it is ``blocking``, nothing is awaited and the step runs in a thread."""

    blocking: bool

    async def take(self) -> StepTransaction:
        """A new transaction, as soon as there is a connection for it; raises StoreUnavailable."""

    async def close(self) -> None:
        """Let go of every connection."""
