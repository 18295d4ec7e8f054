"""A child: a process that another one has asked for, and whose end is told to its parent by a message.

A queued step is a child too, a process of one step: its kind is its queue. So whatever finds a stuck process, fences a
late answer or runs a suspect alone does the same for a task, and there is no second kind of row to recover.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct, json

from perdure import limits
from perdure.errors import PayloadError, UnreadablePayload
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import reader

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

ORDERS = frozenset({MessageType.CANCEL, MessageType.TERMINATE})
"""The messages that ask a process to end: sent before a restart, they count no more after it."""


class ChildBegun(Struct, frozen=True, omit_defaults=True):
    """What the history says of a child that was started: its id, and what its parent's end means for it.

    An ``abandoned`` one lives on, one that is ``terminated`` is ended without a word, any other is asked to end.
    """

    id: str
    abandoned: bool = False
    terminated: bool = False

    def encode(self) -> bytes:
        """The payload of the event."""
        return json.encode(self)

    @property
    def id_bytes(self) -> bytes:
        """The child's id as it is stored."""
        return bytes.fromhex(self.id.replace("-", ""))  # there may be many, and they are written here only


_begun = reader(ChildBegun, "what is recorded of a child")


def begun(event: Event) -> ChildBegun:
    """What a ``CHILD_STARTED`` event says."""
    return _begun(event.payload or b"{}")


def cancel(child: bytes, parent: bytes) -> Message:
    """The wish that a child may end, under an id of its own: it is heard once, however often it is sent."""
    id = blake2b(child, digest_size=16, person=b"cancel").digest()
    return Message(id, child, MessageType.CANCEL, sender=_sender(parent, "its parent wants it no more"))


def terminate(child: bytes, parent: bytes) -> Message:
    """The order that a child ends at once, with its parent; heard once like :func:`cancel`."""
    id = blake2b(child, digest_size=16, person=b"terminate").digest()
    return Message(id, child, MessageType.TERMINATE, sender=_sender(parent, "its parent has ended"))


def _sender(parent: bytes, why: str) -> bytes:
    return json.encode({"who": f"process {id_text(parent)}", "why": why, "origin": "parent"})


def farewell(parent: bytes, history: Sequence[Event]) -> tuple[Message, ...]:
    """What a parent that is ended by force leaves to say: its children that have not answered are to end too.

    A child whose record another hand has damaged goes on by itself: its parent must be able to end. Not so where the
    record is sealed, and this program has no keys: one that has them can tell the child.
    """
    answered = {(event.name, event.place) for event in history if event.message is not None}
    started = [event for event in history if event.type is EventType.CHILD_STARTED]
    bound: list[ChildBegun] = []
    for event in started:
        if (event.name, event.place) not in answered:
            try:
                bound.append(begun(event))
            except UnreadablePayload:
                raise
            except PayloadError:
                continue
    return tuple(
        (terminate if child.terminated else cancel)(child.id_bytes, parent) for child in bound if not child.abandoned
    )


def beforehand(sends: Sequence[Message]) -> tuple[Message, ...]:
    """Of what a commit sends, the orders that go out before it, in portions: all, if they are many, else none."""
    orders = tuple(message for message in sends if message.type in ORDERS)
    return orders if len(orders) > limits.OUTBOX_RECORDS else ()


def without_orders(sends: Sequence[Message]) -> tuple[Message, ...]:
    """What is left for the commit itself, where the orders went before it."""
    return tuple(message for message in sends if message.type not in ORDERS)


# -- how deep a family is --------------------------------------------------------------------------------------------

_DESCENDED = 0x80
"""Ids of children are of version 8 (RFC 9562): their time is where that of the others is, then comes their depth."""


def descended(id: bytes, depth: int) -> bytes:
    """The id of a child so many generations below a process without parent, made from a fresh id."""
    return bytes((*id[:6], _DESCENDED | depth >> 14, depth >> 6 & 0xFF, 0x80 | depth & 0x3F, *id[9:]))


def depth(id: bytes) -> int:
    """How many generations below a process without parent the process of that id is, as far as its id says so."""
    if id[6] & 0xF0 != _DESCENDED:
        return 0
    return (id[6] & 0x0F) << 14 | id[7] << 6 | id[8] & 0x3F
