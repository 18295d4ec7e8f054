"""Late results: an attempt of a task answers although its worker has lost the process, or its time is over.

By default such an answer is refused. For a step with ``accept="first"`` it is sent to the task instead, as a message:
the first answer counts, and the attempt that runs meanwhile is cancelled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from perdure.authoring.task import LATE_ANSWER, accepts_first
from perdure.kernel.message import Message, MessageType, SendAnswer
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.logs import logger
from perdure.runtime.committer import Committer
from perdure.runtime.steps.attempt_run import AttemptRun

log = logger("step")


class LateResults:
    """Sends late answers; ``sent`` is called with the receiving process and the worker that owns it."""

    def __init__(self, committer: Committer, sent: Callable[[bytes, bytes | None], None]) -> None:
        self._committer = committer
        self._sent = sent

    def refused(self, after: Process) -> None:
        """A commit was refused that would have left the process as ``after`` shows it."""
        if after.status is Status.COMPLETED and after.result is not None and accepts_first(after):
            self._send(after, after.result)

    def late(self, attempt_run: AttemptRun, value: Any) -> None:
        """An attempt that was given up has returned a value, which counts only if its step accepts the first answer."""
        process = attempt_run.instance.process
        if accepts_first(process):
            with contextlib.suppress(ValueError):
                self._send(process, attempt_run.ask.step.shape.encode_result(value))

    def _send(self, process: Process, result: bytes) -> None:
        id = blake2b(result, digest_size=16, key=process.id, salt=process.token.to_bytes(8), person=b"late").digest()
        sender = Sender(why="it answers late", origin="worker").encode()
        message = Message(id, process.id, MessageType.SIGNAL, LATE_ANSWER, result, sender=sender)
        # If we die here the late answer is lost, as it would be by default: another attempt is under way, or will be.
        self._committer.send(message, lambda answer: self._answered(process, answer))

    def _answered(self, process: Process, answer: Any) -> None:
        if isinstance(answer, SendAnswer):
            log.info("process %s was sent the late answer of an earlier attempt", id_text(process.id))
            self._sent(process.id, answer.owner)
