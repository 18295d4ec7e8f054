"""Sending on SQLite: messages numbered under the write lock, targets raised and woken set by set (rules 2 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json

from perdure.kernel.message import Message, SendAnswer, SendVerdict
from perdure.kernel.process import FINAL
from perdure.store.sqlite_connection import NOTHING
from perdure.store.sqlite_row import MESSAGE_CELLS, STATUS
from perdure.store.sqlite_writer import Transaction


class _Target(Struct):
    """A process that messages go to, as it is during this send: ``known`` maps ids and keys to numbers."""

    final: bool
    inbox: int
    seen: int
    owner: bytes | None
    ids: dict[bytes, int]
    keys: dict[str, int]
    raised: bool = False


def send(transaction: Transaction, messages: Sequence[Message]) -> list[SendAnswer]:
    """Put messages into inboxes; each is answered by itself, in the order given."""
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
        elif number is None:
            number = _put(target, message)
            cells += (
                bytearray(message.process), number, bytearray(message.id), int(message.type), message.name,
                bytearray(message.payload), NOTHING if message.key is None else message.key,
                NOTHING if message.sender is None else bytearray(message.sender), transaction.now,
            )  # fmt: skip
        if verdict is SendVerdict.DELIVERED and target.final and number > target.seen:
            verdict = SendVerdict.FINISHED
        answers.append(SendAnswer(verdict, message.process, number, target.owner, transaction.now))
    if cells:
        transaction.connection.write("insert_messages", MESSAGE_CELLS, cells)
        raised = [(id, target.inbox, transaction.now) for id, target in targets.items() if target.raised]
        transaction.connection.write("raise_inboxes", 3, [cell for row in raised for cell in row])
    return answers


def _put(target: _Target, message: Message) -> int:
    """Give a new message its number."""
    target.inbox += 1
    target.raised = True
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
        for n, status, inbox, seen, owner, same, other in json.decode(found):
            message = messages[n]
            target = targets.get(message.process)
            if target is None:
                holder = bytes.fromhex(owner) if owner else None
                target = _Target(STATUS[status] in FINAL, inbox, seen, holder, {}, {})
                targets[message.process] = target
            if same is not None:
                target.ids[message.id] = same
            if other is not None and message.key is not None:
                target.keys[message.key] = other
    return targets
