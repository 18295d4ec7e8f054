"""A child: a process that another one has asked for, and whose end is told to its parent by a message.

A queued step is a child too, a process of one step: its kind is its queue. So whatever finds a stuck process, fences a
late answer or runs a suspect alone does the same for a task, and there is no second kind of row to recover.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct, json

from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_bytes, id_text
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


class Begun(Struct, frozen=True, omit_defaults=True):
    """What the history says of a child that was started: its id, and whether it outlives its parent."""

    id: str
    abandoned: bool = False

    def encode(self) -> bytes:
        """The payload of the event."""
        return json.encode(self)

    @property
    def id_bytes(self) -> bytes:
        """The child's id as it is stored."""
        return id_bytes(self.id)


_begun = json.Decoder(Begun).decode


def begun(event: Event) -> Begun:
    """What a ``CHILD_STARTED`` event says."""
    return _begun(event.payload or b"{}")


def cancel(child: bytes, parent: bytes) -> Message:
    """The wish that a child may end, under an id of its own: it is heard once, however often it is sent."""
    id = blake2b(child, digest_size=16, person=b"cancel").digest()
    sender = {"who": f"process {id_text(parent)}", "why": "its parent wants it no more", "origin": "parent"}
    return Message(id, child, MessageType.CANCEL, sender=json.encode(sender))


def farewell(parent: bytes, history: Sequence[Event]) -> tuple[Message, ...]:
    """What a parent that is ended by force leaves to say: its children that have not answered are asked to end too."""
    answered = {(event.name, event.place) for event in history if event.message is not None}
    started = [event for event in history if event.type is EventType.CHILD_STARTED]
    bound = [begun(event) for event in started if (event.name, event.place) not in answered]
    return tuple(cancel(child.id_bytes, parent) for child in bound if not child.abandoned)
