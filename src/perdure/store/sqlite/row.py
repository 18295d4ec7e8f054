"""Records as rows: what is stored for each, and how packed rows become records again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import DecodeError, json
from msgspec.structs import astuple

from perdure.errors import BadRecord
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import Statuses, Types
from perdure.store.sqlite.connection import NOTHING
from perdure.store.sqlite.text import Escaped, listed

T = TypeVar("T")


class _Numbers(dict[Status, int]):
    """The number of each status; a status that this Perdure does not know has its number as its name."""

    def __missing__(self, status: Status) -> int:
        return int(str(status))


STATUS_NUMBER = _Numbers(
    {
        Status.RUNNING: 1,
        Status.HELD: 2,
        Status.BROKEN: 3,
        Status.COMPLETED: 4,
        Status.FAILED: 5,
        Status.CANCELLED: 6,
    }
)
STATUS = Statuses({number: status for status, number in STATUS_NUMBER.items()})
EVENT_TYPE = Types({int(type): type for type in EventType})
MESSAGE_TYPE = Types({int(type): type for type in MessageType})

PROCESS_CELLS = 31
AFTER_CELLS = 26
EVENT_CELLS = 13
MESSAGE_CELLS = 9


def process_cells(process: Process, due_at: int | None, now: int) -> tuple[Any, ...]:
    """The 31 cells of a new row, in the order of the record's fields."""
    (
        id, kind, key, input, status, run, version, token, owner, _due, reminder, inbox, seen, events, awaiting,
        deaths, alone_deaths, deadline, priority, attributes, state, progress, result, error, parent, code, created_at,
        opened_at, _changed, share, cost,
    ) = astuple(process)  # fmt: skip
    created_at = created_at or now
    if opened_at == created_at or (opened_at is None and owner is not None):
        opened_at = 0
    return (
        bytearray(id), kind, NOTHING if key is None else key, bytearray(input), STATUS_NUMBER[status], run, version,
        token, NOTHING if owner is None else bytearray(owner), NOTHING if due_at is None else due_at, int(reminder),
        inbox, seen, events, NOTHING if awaiting is None else awaiting, deaths, alone_deaths,
        NOTHING if deadline is None else deadline, priority, NOTHING if attributes is None else bytearray(attributes),
        NOTHING if state is None else bytearray(state), NOTHING if progress is None else bytearray(progress),
        NOTHING if result is None else bytearray(result), NOTHING if error is None else bytearray(error),
        NOTHING if parent is None else bytearray(parent), code, created_at,
        NOTHING if opened_at is None else opened_at, now, NOTHING if share is None else share,
        NOTHING if cost == 1 else cost,
    )  # fmt: skip


def after_cells(
    id: bytearray, commit: Commit, owner: bytes | None, due_at: int | None, reminder: bool, inbox: int, now: int
) -> tuple[Any, ...]:
    """The 26 cells of a commit: what it writes, then the fence and the inbox that the row must have."""
    (
        _id, _kind, _key, _input, status, run, version, token, _owner, _due, _reminder, _inbox, seen, events, awaiting,
        deaths, alone_deaths, deadline, priority, attributes, state, progress, result, error, _parent, code, _created,
        opened_at, _changed, _share, _cost,
    ) = astuple(commit.after)  # fmt: skip
    return (
        id, STATUS_NUMBER[status], run, version, token, NOTHING if owner is None else bytearray(owner),
        NOTHING if due_at is None else due_at, int(reminder), seen, events, NOTHING if awaiting is None else awaiting,
        deaths, alone_deaths, NOTHING if deadline is None else deadline, priority,
        bytearray(attributes or b"") if commit.attributes_set else NOTHING,
        NOTHING if state is None else bytearray(state),
        bytearray() if commit.progress_kept else NOTHING if progress is None else bytearray(progress),
        NOTHING if result is None else bytearray(result),
        NOTHING if error is None else bytearray(error), code,
        NOTHING if opened_at is None else opened_at, now,
        commit.token, commit.version, inbox,
    )  # fmt: skip


def event_cells(process: bytearray, run: int, token: int, version: int, event: Event) -> tuple[Any, ...]:
    """The 13 cells of an event; its commit is named by token and version (rule 5)."""
    number, turn, type, at, place, name, payload, digest, message, _token, _version = astuple(event)
    return (
        process, run, number, turn, int(type), at, place, name, NOTHING if payload is None else bytearray(payload),
        NOTHING if digest is None else bytearray(digest), NOTHING if message is None else message, token, version,
    )  # fmt: skip


def message_cells(process: bytearray, message: Message, number: int, now: int) -> tuple[Any, ...]:
    """The 9 cells of a message that gets this number."""
    return (
        process, number, bytearray(message.id), int(message.type), message.name, bytearray(message.payload),
        NOTHING if message.key is None else message.key,
        NOTHING if message.sender is None else bytearray(message.sender), now,
    )  # fmt: skip


def check_attributes(attributes: bytes) -> None:
    """Refuse attributes that are not JSON, or that hold a NUL, which no database can search."""
    try:
        again = json.encode(json.decode(attributes))
    except (DecodeError, UnicodeError, RecursionError) as error:
        raise BadRecord(f"attributes must be JSON in UTF-8: {error}; correct the value or leave it out") from None
    if b"\\u0000" in again.replace(b"\\\\", b""):
        raise BadRecord("the attributes hold a NUL character, which cannot be searched for; leave it out")


def garbled(packed: tuple[Any, ...]) -> bool:
    """Whether a packed answer holds a text that is not UTF-8."""
    return type(packed[0]) is Escaped


def processes(packed: tuple[Any, ...]) -> list[Process]:
    """The processes in a packed answer."""
    return _unpacked(packed, _process)


def events(packed: tuple[Any, ...]) -> list[tuple[bytes, Event]]:
    """The events in a packed answer, each with the id of its process."""
    return _unpacked(packed, _event)


def messages(packed: tuple[Any, ...]) -> list[Message]:
    """The messages in a packed answer."""
    return _unpacked(packed, _message)


class _Body:
    """The payloads of a packed answer, taken one after the other by their lengths."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, length: int | None) -> bytes | None:
        """The next payload, None if it was NULL."""
        if length is None:
            return None
        begin = self._at
        self._at = begin + length
        return self._body[begin : self._at]


def _unpacked(packed: tuple[Any, ...], record: Callable[[list[Any], _Body], T]) -> list[T]:
    heads, content = packed
    body = _Body(content or b"")
    return [record(head, body) for head in listed(heads)]


def _process(head: list[Any], body: _Body) -> Process:
    (
        id, kind, key, input, status, run, version, token, owner, due_at, reminder, inbox, seen, events, awaiting,
        deaths, alone_deaths, deadline, priority, attributes, state, progress, result, error, parent, code, created_at,
        opened_at, changed_at, share, cost,
    ) = head  # fmt: skip
    take = body.take
    return Process(
        bytes.fromhex(id), kind, key, take(input) or b"", STATUS[status], run, version, token, _id(owner), due_at,
        reminder == 1, inbox, seen, events, awaiting, deaths, alone_deaths, deadline, priority, take(attributes),
        take(state), take(progress), take(result), take(error), _id(parent), code, created_at, opened_at, changed_at,
        share, 1 if cost is None else cost,
    )  # fmt: skip


def _event(head: list[Any], body: _Body) -> tuple[bytes, Event]:
    process, number, turn, type, at, place, name, payload, digest, message, token, version = head
    return bytes.fromhex(process), Event(
        number, turn, EVENT_TYPE[type], at, place, name, body.take(payload), body.take(digest), message, token, version
    )


def _message(head: list[Any], body: _Body) -> Message:
    process, id, type, name, payload, key, sender, number, at, consumed_run, consumed_by = head
    return Message(
        bytes.fromhex(id), bytes.fromhex(process), MESSAGE_TYPE[type], name, body.take(payload) or b"", key,
        body.take(sender), number, at, consumed_run, consumed_by,
    )  # fmt: skip


def _id(text: str) -> bytes | None:
    return bytes.fromhex(text) if text else None
