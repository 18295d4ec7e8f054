"""The letters of inboxes on SQLite: in which portions they are read, and in which inboxes some wait or are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import json

from perdure.errors import DamagedRecord
from perdure.kernel.integrity import lacking
from perdure.kernel.message import LettersWanted, Message
from perdure.kernel.process import Process
from perdure.limits import BATCH_BYTES, SMALL_INBOX_RECORDS
from perdure.store.sqlite import row as sqlite_row
from perdure.store.sqlite.connection import Connection


def weighed(connection: Connection, named: Sequence[tuple[bytes, int]]) -> Iterator[list[Any]]:
    """The cells of the messages that events refer to, in groups that one packed answer holds well."""
    if len(named) <= SMALL_INBOX_RECORDS:
        if named:
            yield [cell for pair in named for cell in pair]
        return
    group: list[Any] = []
    total = 0
    for (found,) in connection.ask("weigh_messages", 2, [cell for pair in named for cell in pair]):
        for id, number, size in json.decode(found):
            if group and total + size > BATCH_BYTES:
                yield group
                group, total = [], 0
            group += (bytes.fromhex(id), number)
            total += size
    if group:
        yield group


def backlogged(connection: Connection, rows: Sequence[Process]) -> set[bytes]:
    """Which of the rows have letters that they have heard and not received."""
    ids: list[Any] = [row.id for row in rows if row.inbox]
    if not ids:
        return set()
    return {bytes.fromhex(id) for (found,) in connection.ask("find_waiting", 1, ids) for id in json.decode(found)}


def missing_letters(connection: Connection, processes: Sequence[bytes]) -> dict[bytes, DamagedRecord]:
    """Of these inboxes, why those cannot be read from which a letter is missing."""
    if not processes:
        return {}
    every = [one for (found,) in connection.ask("find_lacking", 1, [*processes]) for one in json.decode(found)]
    return {(id := bytes.fromhex(text)): lacking(id, counted, there) for text, counted, there in every}


def waiting(connection: Connection, asked: Sequence[LettersWanted]) -> list[Message]:
    """The letters that were asked for, as many of each as are read at once, of each process by their numbers.

    Raises DamagedRecord if any is missing.
    """
    for trouble in missing_letters(connection, sorted({one.process for one in asked})).values():
        raise trouble
    found: list[Message] = []
    for one in asked:
        packed = connection.one(
            "read_waiting", process=one.process, name=one.name, after=one.after, seen=one.seen, upto=one.upto,
            most=one.most, bytes=BATCH_BYTES,
        )  # fmt: skip
        found += sqlite_row.messages(packed)
    return sorted(found, key=lambda message: (message.process, message.number))
