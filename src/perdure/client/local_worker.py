"""A local worker: the worker of the same engine, as the client uses it; a pure client has none."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from perdure.authoring.workflow import Workflow
from perdure.kernel.commit import StartAnswer
from perdure.kernel.message import Message, OnBrought, SendAnswer
from perdure.kernel.process import Process


class LocalWorker(Protocol):
    """How a client calls the worker of its own engine directly, without a detour through the store."""

    def start(
        self, process: Process, workflow: Workflow[Any, Any], messages: tuple[Message, ...]
    ) -> asyncio.Future[StartAnswer] | None:
        """Start a process that the worker owns from the beginning; None if the worker does not take it."""

    def start_repeated(self, process: Process, workflow: Workflow[Any, Any]) -> asyncio.Future[StartAnswer] | None:
        """The same for a process whose id others may start too: the worker owns it only if its row is new."""

    async def has_room(self, kind: str) -> bool:
        """Wait a moment for places in the worker, if it is full; false if they become free too slowly to wait again."""

    def holds(self, process: bytes) -> bool:
        """Whether the worker holds the process."""

    def bring(self, message: Message, written: OnBrought) -> bool:
        """Have a letter heard and stored by one commit, if the worker holds its process and that only waits.

        False: it must be sent. ``written`` is called with what that commit has written; or with None if the letter must
        be sent after all.
        """

    def sent(self, message: Message, answer: SendAnswer) -> None:
        """This client has sent a message, and the store has answered."""

    def taken(self, process: bytes, token: int | None) -> None:
        """A command of this client took a row from its owner; the row has ``token`` now."""


class NoWorker:
    """The local worker of a pure client: it takes nothing and holds nothing."""

    def start(self, process: Process, workflow: Workflow[Any, Any], messages: tuple[Message, ...]) -> None:
        """See LocalWorker."""

    def start_repeated(self, process: Process, workflow: Workflow[Any, Any]) -> None:
        """See LocalWorker."""

    async def has_room(self, kind: str) -> bool:
        """See LocalWorker."""
        return False

    def holds(self, process: bytes) -> bool:
        """See LocalWorker."""
        return False

    def bring(self, message: Message, written: OnBrought) -> bool:
        """See LocalWorker."""
        return False

    def sent(self, message: Message, answer: SendAnswer) -> None:
        """See LocalWorker."""

    def taken(self, process: bytes, token: int | None) -> None:
        """See LocalWorker."""
