"""A pact: one transaction for a step's effect and its result; both are there, or neither.

The step writes by the pact's connection. Then its result is recorded there, as a message to the step's own process, if
that is still in the same hands, and both are committed. Nothing here decides whether a step is tried again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from perdure.kernel.message import Message


class PactVerdict(StrEnum):
    """``KEPT``: effect and result are committed. Else nothing of this attempt is there.

    ``KNOWN``: another attempt's result is. ``REFUSED``: the process is in other hands, a late answer.
    """

    KEPT = "kept"
    KNOWN = "known"
    REFUSED = "refused"


class PactAnswer(Struct, frozen=True, gc=False):
    """What became of a pact: ``number`` is that of the result's message, ``at`` the store's time."""

    verdict: PactVerdict
    number: int = 0
    at: int = 0


class Pact(Protocol):
    """One transaction. Unless :meth:`keep` answers ``KEPT``, nothing of it is there; :meth:`end` follows always."""

    @property
    def connection(self) -> Any:
        """What the step writes by."""

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result with that ``id`` is there already: then the answer is False.

        Raises StoreUnavailable. ``patience`` is how many seconds may pass between two statements of the step.
        """

    def seal(self) -> bool:
        """The step has returned: from now on nobody can take its pact back. False if somebody has."""

    def abandon(self) -> bool:
        """Take the pact back, from another thread too: it is rolled back, whatever the step does. False: too late."""

    async def keep(self, message: Message, owner: bytes, token: int) -> PactAnswer:
        """Record the result and commit, if the process has still that owner and token; never cancelled."""

    async def end(self) -> None:
        """Roll back what is open and give the connection back."""


class Pacts(Protocol):
    """Makes pacts on one store. With a ``blocking`` one nothing ever waits, and its step runs in a thread."""

    blocking: bool

    async def take(self) -> Pact:
        """A new pact, as soon as there is a connection for it; raises StoreUnavailable."""

    async def close(self) -> None:
        """Let go of every connection."""
