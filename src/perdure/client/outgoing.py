"""What this program sends to processes, and which calls our own worker hears before they are stored."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.client.local_worker import LocalWorker
from perdure.futures import OnAnswer, to_future
from perdure.kernel.message import Message, SendAnswer, SendVerdict, Written

if TYPE_CHECKING:
    from perdure.client.parts import Doors

_NOT_SENT = frozenset({SendVerdict.NOT_FOUND, SendVerdict.FULL})


class Outgoing:
    """Sends messages. A call that was heard at once and what is sent to its process do not overtake each other."""

    def __init__(self, doors: Doors, local: LocalWorker) -> None:
        self._doors = doors
        self._local = local
        self._sending: dict[bytes, int] = {}  # how many are on their way, by process
        self._lines: dict[
            bytes, list[tuple[Message, asyncio.Future[Any]]]
        ] = {}  # what waits until a process has written the call that it has heard

    def sent(self, message: Message) -> asyncio.Future[SendAnswer]:
        """Send a message; our own worker hears of it before the future has the answer."""
        future: asyncio.Future[SendAnswer] = asyncio.get_running_loop().create_future()
        self._send(message, future)
        return future

    def _send(self, message: Message, future: asyncio.Future[SendAnswer]) -> None:
        process = message.process
        line = self._lines.get(process)
        if line is not None:
            line.append((message, future))
            return
        self._sending[process] = self._sending.get(process, 0) + 1
        self._doors.send(message, partial(self._answered, message, to_future(future)))

    def _answered(self, message: Message, answered: OnAnswer, answer: Any) -> None:
        left = self._sending.pop(message.process) - 1
        if left:
            self._sending[message.process] = left
        if isinstance(answer, SendAnswer) and answer.verdict not in _NOT_SENT:
            self._local.sent(message, answer)
        answered(answer)

    def bring(self, message: Message) -> asyncio.Future[Written | SendAnswer] | None:
        """Have a call heard at once, if our own worker holds the process; None if it must be sent.

        It must be if another message is on its way there: that one would be quicker. What is sent after the call waits
        for it. The future tells what was written with it; or how it was sent, if it had to be after all.
        """
        process = message.process
        if process in self._sending or process in self._lines:
            return None
        future: asyncio.Future[Written | SendAnswer] = asyncio.get_running_loop().create_future()
        if not self._local.bring(message, partial(self._brought, message, future)):
            return None
        self._lines[process] = []
        return future

    def _brought(self, message: Message, future: asyncio.Future[Any], written: Written | None) -> None:
        line = self._lines.pop(message.process)
        if written is None:
            self._send(message, future)
        elif not future.done():
            future.set_result(written)
        for later in line:
            self._send(*later)
