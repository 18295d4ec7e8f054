"""A child: a process that another process, its parent, has asked for; a message tells the parent of its end.

A queued step is a child too, a process of one step: its kind is its queue. So the code that finds a stuck process,
fences a late answer or runs a suspect alone does the same for a task, and there is no second kind of row to recover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from msgspec import Struct, json

from perdure import limits
from perdure.errors import PayloadError, UnreadablePayload
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.plain import shown
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import reader

QUEUE_MARK = "@"
"""The first character of a task's kind: no workflow has a name that begins with it."""


def is_task(kind: str) -> bool:
    """Whether processes of that kind are queued steps."""
    return kind.startswith(QUEUE_MARK)


def queue_kind(queue: str) -> str:
    """The kind of the tasks that wait in a queue."""
    return QUEUE_MARK + queue


def answer(process: Process) -> tuple[Message, ...]:
    """The message that tells a parent of its child's end; its id is the child's, so that a second one is recognised."""
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
"""The messages that ask a process to end; after a restart, those sent before it count no more."""


class ChildBegun(Struct, frozen=True, omit_defaults=True):
    """The record of a started child: its id, and what becomes of it when its parent ends.

    An ``abandoned`` child lives on, a ``terminated`` one is ended at once, any other is asked to end.
    """

    id: str
    abandoned: bool = False
    terminated: bool = False

    def encode(self) -> bytes:
        """The payload of the event."""
        return json.encode(self)

    @property
    def id_bytes(self) -> bytes:
        """The child's id as it is stored; raises PayloadError if the record is damaged."""
        try:
            id = bytes.fromhex(self.id.replace("-", ""))
        except ValueError:
            id = b""
        if len(id) != 16:
            raise PayloadError(f"what is recorded of a child has no id, but {shown(self.id)}: restore it from a backup")
        return id


_begun = reader(ChildBegun, "what is recorded of a child")


def begun(event: Event) -> ChildBegun:
    """What a ``CHILD_STARTED`` event says."""
    return _begun(event.payload or b"{}")


def cancel(child: bytes, parent: bytes) -> Message:
    """The message that asks a child to end; its id is made from the child's, so that it counts once if sent again."""
    id = blake2b(child, digest_size=16, person=b"cancel").digest()
    return Message(id, child, MessageType.CANCEL, sender=_sender(parent, "its parent wants it no more"))


def terminate(child: bytes, parent: bytes) -> Message:
    """The message that ends a child at once, with its parent; it counts once, like :func:`cancel`."""
    id = blake2b(child, digest_size=16, person=b"terminate").digest()
    return Message(id, child, MessageType.TERMINATE, sender=_sender(parent, "its parent has ended"))


def _sender(parent: bytes, why: str) -> bytes:
    return json.encode({"who": f"process {id_text(parent)}", "why": why, "origin": "parent"})


def farewell(parent: bytes, history: Sequence[Event]) -> tuple[Message, ...]:
    """The messages of a parent that is ended by force: they end its children that have not answered.

    A child whose record is damaged gets none and goes on by itself: its parent must be able to end. But if the record
    is sealed and this program lacks the keys, it raises UnreadablePayload: a program with the keys can end both.
    """
    answered = {(event.name, event.place) for event in history if event.message is not None}
    started = [event for event in history if event.type is EventType.CHILD_STARTED]
    ended: list[Message] = []
    for event in started:
        if (event.name, event.place) not in answered:
            try:
                child = begun(event)
                if not child.abandoned:
                    ended.append((terminate if child.terminated else cancel)(child.id_bytes, parent))
            except UnreadablePayload:
                raise
            except PayloadError:
                continue
    return tuple(ended)


def beforehand(sends: Sequence[Message]) -> tuple[Message, ...]:
    """The orders to end that are sent before their commit, in portions: all if they are too many for it, else none."""
    orders = tuple(message for message in sends if message.type in ORDERS)
    return orders if len(orders) > limits.OUTBOX_RECORDS else ()


TOLD_FIRST = "children are told first"
"""Stands in the reason for which a parent is held while orders go out before the commit that ends it."""


def told_first(orders: Sequence[Message]) -> str:
    """Why a parent is held while these orders go out."""
    return f"its {len(orders):,} {TOLD_FIRST}"


def portions(orders: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """These orders, as many at a time as one commit takes."""
    for first in range(0, len(orders), limits.OUTBOX_RECORDS):
        yield orders[first : first + limits.OUTBOX_RECORDS]


def without_orders(sends: Sequence[Message]) -> tuple[Message, ...]:
    """The messages left for the commit itself, after its orders to end were sent."""
    return tuple(message for message in sends if message.type not in ORDERS)


# -- how deep a family is --------------------------------------------------------------------------------------------

_DESCENDED = 0x80
"""Ids of children are of version 8 (RFC 9562): the time is in the same place as in other ids, then comes the depth."""


def descended(id: bytes, depth: int) -> bytes:
    """The id of a child, made from a fresh id; ``depth`` counts the generations below a process without a parent."""
    return bytes((*id[:6], _DESCENDED | depth >> 14, depth >> 6 & 0xFF, 0x80 | depth & 0x3F, *id[9:]))


def depth(id: bytes) -> int:
    """How many generations the process with that id is below one without a parent; 0 if the id does not say."""
    if id[6] & 0xF0 != _DESCENDED:
        return 0
    return (id[6] & 0x0F) << 14 | id[7] << 6 | id[8] & 0x3F
