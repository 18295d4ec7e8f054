"""A child: a process that another one has asked for, and whose end is told to its parent by a message.

A queued step is a child too, a process of one step: its kind is its queue. So whatever finds a stuck process, fences a
late answer or runs a suspect alone does the same for a task, and there is no second kind of row to recover.
"""

from __future__ import annotations

from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status

QUEUE_MARK = "@"
"""The first letter of the kind of a task: no workflow has a name that begins with it."""


def is_task(kind: str) -> bool:
    """Whether processes of that kind are queued steps."""
    return kind.startswith(QUEUE_MARK)


def queue_kind(queue: str) -> str:
    """The kind of the tasks that wait in a queue."""
    return QUEUE_MARK + queue


def answer(process: Process) -> tuple[Message, ...]:
    """What the end of a child tells its parent, under the child's own id: a second answer is known and left out."""
    if process.parent is None or not process.final:
        return ()
    if process.status is Status.COMPLETED:
        return (_answer(process, process.parent, MessageType.RESULT, process.result or b"null"),)
    error = process.error or Failure(type="Cancelled", message="the process was cancelled").encode()
    type = MessageType.CANCELLED if process.status is Status.CANCELLED else MessageType.FAILURE
    return (_answer(process, process.parent, type, error),)


def _answer(process: Process, parent: bytes, type: MessageType, payload: bytes) -> Message:
    return Message(process.id, parent, type, process.kind, payload)


ANSWERS = frozenset({MessageType.RESULT, MessageType.FAILURE, MessageType.CANCELLED})
"""The messages with which a child ends its parent's wait."""
