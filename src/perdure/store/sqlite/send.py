"""Sending on SQLite: messages numbered under the write lock, targets raised and woken set by set (rules 2 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json

from perdure import limits
from perdure.kernel.message import LETTERS, Message, SendAnswer, SendVerdict
from perdure.kernel.process import FINAL
from perdure.store.sqlite.connection import NOTHING
from perdure.store.sqlite.row import MESSAGE_CELLS, STATUS, message_cells
from perdure.store.sqlite.writer import Transaction


class _Target(Struct):
    """A process that messages go to, as it is during this send: ``ids`` and ``keys`` map to known numbers.

    ``waiting`` and ``waiting_bytes`` count the letters in its inbox, ``letters`` and ``bytes`` those that this send
    adds.
    """

    final: bool
    inbox: int
    seen: int
    owner: bytes | None
    waiting: int
    waiting_bytes: int
    ids: dict[bytes, int]
    keys: dict[str, int]
    raised: bool = False
    letters: int = 0
    bytes: int = 0


def admit(transaction: Transaction, messages: Sequence[Message]) -> list[SendAnswer]:
    """Send messages from outside: a signal or a call is refused if the inbox has no room for it."""
    return send(transaction, messages, limits.INBOX_RECORDS, limits.INBOX_BYTES)


def send(
    transaction: Transaction, messages: Sequence[Message], most: int | None = None, most_bytes: int = 0
) -> list[SendAnswer]:
    """Put messages into inboxes; each is answered by itself, in the order given.

    Without ``most`` there is no limit: what the engine sends by itself is bounded by what processes have asked for.
    """
    targets = _look(transaction, messages)
    cells: list[Any] = []
    answers: list[SendAnswer] = []
    for message in messages:
        target = targets.get(message.process)
        if target is None:
            answers.append(SendAnswer(SendVerdict.NOT_FOUND, message.process, 0, None, transaction.now))
            continue
        number = target.ids.get(message.id)
        verdict = SendVerdict.DELIVERED
        if number is None and message.key is not None and message.key in target.keys:
            number, verdict = target.keys[message.key], SendVerdict.DUPLICATE
        elif number is None and most is not None and _full(target, message, most, most_bytes):
            number, verdict = 0, SendVerdict.FULL
        elif number is None:
            number = _put(target, message)
            cells += message_cells(bytearray(message.process), message, number, transaction.now)
        if verdict is SendVerdict.DELIVERED and target.final and number > target.seen:
            verdict = SendVerdict.FINISHED
        answers.append(SendAnswer(verdict, message.process, number, target.owner, transaction.now))
    if cells:
        transaction.connection.write("insert_messages", MESSAGE_CELLS, cells)
        raised = [
            (id, target.inbox, transaction.now, target.letters, target.bytes)
            for id, target in targets.items()
            if target.raised
        ]
        transaction.connection.write("raise_inboxes", 5, [cell for row in raised for cell in row])
    return answers


def _full(target: _Target, message: Message, most: int, most_bytes: int) -> bool:
    """Whether the inbox has no room for this message; one letter has room in every empty inbox."""
    waiting = target.waiting + target.letters
    size = target.waiting_bytes + target.bytes + len(message.payload)
    return message.type in LETTERS and waiting > 0 and (waiting >= most or size > most_bytes)


def _put(target: _Target, message: Message) -> int:
    """Give a new message its number."""
    target.inbox += 1
    target.raised = True
    if message.type in LETTERS:
        target.letters += 1
        target.bytes += len(message.payload)
    target.ids[message.id] = target.inbox
    if message.key is not None:
        target.keys[message.key] = target.inbox
    return target.inbox


def _look(transaction: Transaction, messages: Sequence[Message]) -> dict[bytes, _Target]:
    cells: list[Any] = []
    for n, message in enumerate(messages):
        key = NOTHING if message.key is None else message.key
        cells += (n, bytearray(message.process), bytearray(message.id), key)
    targets: dict[bytes, _Target] = {}
    for (found,) in transaction.connection.ask("look_at_targets", 4, cells):
        for n, status, inbox, seen, owner, same, other, waiting, size in json.decode(found):
            message = messages[n]
            target = targets.get(message.process)
            if target is None:
                holder = bytes.fromhex(owner) if owner else None
                target = _Target(STATUS[status] in FINAL, inbox, seen, holder, waiting, size, {}, {})
                targets[message.process] = target
            if same is not None:
                target.ids[message.id] = same
            if other is not None and message.key is not None:
                target.keys[message.key] = other
    return targets
