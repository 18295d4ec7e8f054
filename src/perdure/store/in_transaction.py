"""Start and send inside a transaction that belongs to the caller.

The statements run on the caller's connection, with any driver. If the caller's transaction commits, the process or
message is there, and workers are woken; if it is rolled back, nothing ever happened. Nothing here commits, rolls back
or tries again.
"""

from __future__ import annotations

from typing import Protocol

from perdure.kernel.commit import Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer


class StoreInTransaction(Protocol):
    """What a store does on the caller's connection. With a blocking connection nothing here is ever awaited."""

    @property
    def blocking(self) -> bool:
        """Whether the connection's calls block, so that nothing is awaited."""

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process; its ``deadline`` is in microseconds from now, by the store's clock."""

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox."""
