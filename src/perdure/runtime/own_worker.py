"""The worker of an engine, as the client of the same engine calls it: without a detour through the store."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING, Any, Protocol

from perdure.authoring.workflow import Workflow
from perdure.futures import to_future
from perdure.kernel.commit import StartAnswer
from perdure.kernel.message import Message, OnBrought, SendAnswer
from perdure.kernel.process import Process

if TYPE_CHECKING:
    from perdure.runtime.worker import Worker


class WithWorker(Protocol):
    """An engine; its worker is None while it has none."""

    worker: Worker | None


class OwnWorker:
    """The worker of an engine, as its client uses it: see LocalWorker. Takes nothing while the engine has no worker."""

    def __init__(self, engine: WithWorker) -> None:
        self._engine = engine

    def start(
        self, process: Process, workflow: Workflow[Any, Any], messages: tuple[Message, ...]
    ) -> Future[StartAnswer] | None:
        """Start a process that our worker owns from the beginning, if it has room: no claim, no wake-up."""
        worker = self._engine.worker
        if worker is None or not worker.takes(process.kind):
            return None
        future: Future[StartAnswer] = get_running_loop().create_future()
        worker.scheduler.eager.start(process, workflow, to_future(future), messages)
        return future

    def start_repeated(self, process: Process, workflow: Workflow[Any, Any]) -> Future[StartAnswer] | None:
        """See LocalWorker."""
        worker = self._engine.worker
        if worker is None or not worker.takes(process.kind) or worker.scheduler.eager.knows(process.id):
            return None
        future: Future[StartAnswer] = get_running_loop().create_future()
        worker.scheduler.eager.start(process, workflow, to_future(future), repeated=True)
        return future

    async def has_room(self, kind: str) -> bool:
        """See LocalWorker."""
        worker = self._engine.worker
        return worker is not None and await worker.has_room(kind)

    def holds(self, process: bytes) -> bool:
        """See LocalWorker."""
        worker = self._engine.worker
        return worker is not None and process in worker.scheduler.instances

    def bring(self, message: Message, written: OnBrought) -> bool:
        """See LocalWorker."""
        worker = self._engine.worker
        return worker is not None and worker.scheduler.bringing.bring(message, written)

    def sent(self, message: Message, answer: SendAnswer) -> None:
        """Let our worker hear the message now if it holds the process, or claim the process if no worker holds it."""
        worker = self._engine.worker
        if worker is not None and not worker.handed(message, answer):
            worker.sent(answer.process, answer.owner)

    def taken(self, process: bytes, token: int | None) -> None:
        """Let our worker drop at once a process that a command from here took from it, before the fence refuses it."""
        worker = self._engine.worker
        if worker is not None:
            worker.taken(process, token)
            worker.hint()
