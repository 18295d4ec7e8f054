"""A local worker: the worker of the same engine, as the client uses it; a pure client has none."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from perdure.authoring.workflow import Workflow
from perdure.kernel.commit import StartAnswer
from perdure.kernel.message import Message, SendAnswer
from perdure.kernel.process import Process


class LocalWorker(Protocol):
    """What a client asks of the worker beside it, and tells it, so that nothing takes the way through the store."""

    def start(
        self, process: Process, workflow: Workflow[Any, Any], messages: tuple[Message, ...]
    ) -> asyncio.Future[StartAnswer] | None:
        """Start a process as owned by that worker; None if it does not take it."""

    def holds(self, process: bytes) -> bool:
        """Whether that worker holds the process."""

    def sent(self, answer: SendAnswer) -> None:
        """A message was sent from here."""

    def taken(self, process: bytes, token: int | None) -> None:
        """A command from here took a row from its owner; it has that token now."""


class NoWorker:
    """The local worker of a pure client: it takes nothing and holds nothing."""

    def start(self, process: Process, workflow: Workflow[Any, Any], messages: tuple[Message, ...]) -> None:
        """See LocalWorker."""

    def holds(self, process: bytes) -> bool:
        """See LocalWorker."""
        return False

    def sent(self, answer: SendAnswer) -> None:
        """See LocalWorker."""

    def taken(self, process: bytes, token: int | None) -> None:
        """See LocalWorker."""
