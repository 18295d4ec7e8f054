"""The store's two doors for newcomers, start and send, inside a transaction that belongs to the caller.

The caller's connection does it, whichever driver's it is: if his transaction commits, the process or message is there,
and workers are woken; if it is rolled back, nothing ever happened. Nothing here commits, rolls back or tries again.
"""

from __future__ import annotations

from typing import Protocol

from perdure.kernel.commit import Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer


class StoreInTransaction(Protocol):
    """What a store does on a connection of the caller's. With a blocking connection nothing here ever waits."""

    @property
    def blocking(self) -> bool:
        """Whether the connection's calls block, so that nothing is awaited."""

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process; its ``deadline`` is in microseconds from now, by the store's clock."""

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox."""
