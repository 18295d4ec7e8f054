"""The archive's form: one process with its history and its inbox as one line of JSON, to be kept, moved and rehearsed.

A line has the version of its form, and a digest of all that it holds: no part of a damaged line is ever used. Payloads
stand in it as the JSON that they are. One that is sealed, or is no JSON in one line, is written in base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec import Raw, Struct, json

from perdure.errors import InvalidInput, InvalidKey
from perdure.kernel.event import Event, EventType
from perdure.kernel.integrity import needed
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import MALFORMED, Undecodable, why_undecodable

FORM = 1
"""The form in which lines are written, and the newest one that can be read."""
BASE64 = b'{"$base64"'
"""How a value begins that is no JSON in one line, or is sealed."""
_NONE = Raw(b"")
_DIGEST_BYTES = 16


class ArchiveLine(Struct, frozen=True):
    """One line: ``perdure`` is the version of its form, ``digest`` that of the record's bytes, in hexadecimal."""

    perdure: int
    digest: str
    record: Raw


class StoredProcess(Struct, frozen=True, omit_defaults=True):
    """The row of a process in a line. Times are microseconds since 1970, ids are texts.

    What belongs to a database is left out: who owns the row, its fence, and the deaths of its workers.
    """

    id: str
    kind: str
    status: str
    input: Raw
    version: str = ""
    key: str | None = None
    run: int = 1
    inbox: int = 0
    seen: int = 0
    awaiting: str | None = None
    due_at: int | None = None
    deadline: int | None = None
    priority: int = 4
    attributes: Raw = _NONE
    state: Raw = _NONE
    progress: Raw = _NONE
    result: Raw = _NONE
    error: Raw = _NONE
    parent: str | None = None
    created_at: int = 0
    opened_at: int | None = None
    changed_at: int = 0
    share: str | None = None
    cost: int = 1


class StoredEvent(Struct, frozen=True, omit_defaults=True):
    """One event in a line; ``type`` is its number, ``digest`` that of the step's arguments, in hexadecimal."""

    number: int
    type: int
    at: int
    turn: int = 0
    place: str = ""
    name: str = ""
    payload: Raw = _NONE
    digest: str | None = None
    message: int | None = None


class StoredMessage(Struct, frozen=True, omit_defaults=True):
    """One message in a line."""

    number: int
    id: str
    type: int
    at: int
    payload: Raw
    name: str = ""
    key: str | None = None
    sender: Raw = _NONE


class ArchivedRecord(Struct, frozen=True, omit_defaults=True):
    """What a line holds: a process, the events of its last run, and the messages that this run needs.

    ``redacted`` names the parts whose values were replaced. ``former`` are the events of the runs before, by their
    number: they are for people, and are not taken over by an import.
    """

    process: StoredProcess
    events: list[StoredEvent]
    messages: list[StoredMessage] = []
    redacted: list[str] = []
    former: dict[str, list[StoredEvent]] = {}


class Archived(Struct, frozen=True):
    """A process as a line had it; ``line`` is the number of the line in its file.

    Of the messages those are consumed that the events have received.
    """

    process: Process
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    redacted: tuple[str, ...] = ()
    line: int = 0


# -- writing ---------------------------------------------------------------------------------------------------------


def record_of(process: Process, events: Sequence[Event], messages: Sequence[Message]) -> ArchivedRecord:
    """The record of a process as its row was; ``messages`` are all of its inbox, read not earlier than the row."""
    row = StoredProcess(
        id_text(process.id), process.kind, str(process.status), value(process.input), process.code, process.key,
        process.run, process.inbox, process.seen, process.awaiting, None if process.owner else process.due_at,
        process.deadline, process.priority, value(process.attributes), value(process.state), value(process.progress),
        value(process.result), value(process.error), None if process.parent is None else id_text(process.parent),
        process.created_at, process.opened_at, process.changed_at, process.share, process.cost,
    )  # fmt: skip
    return ArchivedRecord(row, stored(events), [_message(one) for one in needed(process, events, messages)])


def stored(events: Iterable[Event]) -> list[StoredEvent]:
    """Events as a line has them."""
    return [
        StoredEvent(
            one.number, int(one.type), one.at, one.turn, one.place, one.name, value(one.payload),
            None if one.digest is None else one.digest.hex(), one.message,
        )
        for one in events
    ]  # fmt: skip


def _message(one: Message) -> StoredMessage:
    id = one.id.hex()
    return StoredMessage(
        one.number, id, int(one.type), one.at, value(one.payload), one.name, one.key, value(one.sender)
    )


def value(raw: bytes | None) -> Raw:
    """A payload as a line has it; nothing if there is none."""
    if raw is None:
        return _NONE
    if b"\n" not in raw and b"\r" not in raw and not raw.startswith(BASE64):
        try:
            raw.decode()
            if bytes(json.decode(raw, type=Raw)) == raw:
                return Raw(raw)
        except MALFORMED:
            pass
    return Raw(b'%s:"%s"}' % (BASE64, b64encode(raw)))


def written(record: ArchivedRecord) -> bytes:
    """The line of a record, with its end."""
    raw = json.encode(record)
    return b'{"perdure":%d,"digest":"%s","record":%s}\n' % (FORM, _digest(raw).encode(), raw)


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest()


# -- reading ---------------------------------------------------------------------------------------------------------

_line = json.Decoder(ArchiveLine).decode
_record = json.Decoder(ArchivedRecord).decode
_base64 = json.Decoder(dict[str, str]).decode


def read(line: bytes, number: int = 0) -> Archived:
    """The process that a line holds; ``number`` is that of the line, for the error. Raises InvalidInput."""
    try:
        found = _line(line)
    except MALFORMED as error:
        raise InvalidInput(
            f"line {number} is no line of an export, or was cut: {error}. Take it from the original file again"
        ) from None
    if found.perdure != FORM:
        raise InvalidInput(
            f"line {number} has form {found.perdure}, and this Perdure reads form {FORM}. Use the Perdure that wrote it"
        )
    raw = bytes(found.record)
    if _digest(raw) != found.digest:
        raise InvalidInput(
            f"line {number} was changed after it was written: it has not the digest that it names. "
            "Take it from the original file again"
        )
    try:
        return _archived(_record(raw), number)
    except (*MALFORMED, ValueError, InvalidKey) as error:
        raise InvalidInput(f"line {number} does not hold a process: {error}") from None


def _archived(record: ArchivedRecord, number: int) -> Archived:
    row = record.process
    process = Process(
        id_bytes(row.id), row.kind, row.key, _raw(row.input) or b"", Status(row.status), row.run, inbox=row.inbox,
        seen=row.seen, events=len(record.events), awaiting=row.awaiting, due_at=row.due_at, deadline=row.deadline,
        priority=row.priority, attributes=_raw(row.attributes), state=_raw(row.state), progress=_raw(row.progress),
        result=_raw(row.result), error=_raw(row.error), parent=None if row.parent is None else id_bytes(row.parent),
        code=row.version, created_at=row.created_at, opened_at=row.opened_at, changed_at=row.changed_at,
        share=row.share, cost=row.cost,
    )  # fmt: skip
    events = tuple(
        Event(
            one.number, one.turn, EventType(one.type), one.at, one.place, one.name, _raw(one.payload),
            None if one.digest is None else bytes.fromhex(one.digest), one.message,
        )
        for one in record.events
    )  # fmt: skip
    messages = [
        Message(
            bytes.fromhex(one.id), process.id, MessageType(one.type), one.name, _raw(one.payload) or b"", one.key,
            _raw(one.sender), one.number, one.at,
        )
        for one in record.messages
    ]  # fmt: skip
    return Archived(process, events, tuple(needed(process, events, messages)), tuple(record.redacted), number)


def _raw(value: Raw) -> bytes | None:
    """The payload that a value stands for; one that is sealed is passed on as it is."""
    raw = bytes(value)
    if not raw.startswith(BASE64):
        return raw or None
    try:
        raw = b64decode(_base64(raw)["$base64"], validate=True)
    except NotBase64 as error:
        raise ValueError(f"a value is not base64: {error}") from None
    why = why_undecodable(raw)
    return raw if why is None else Undecodable(raw, why)
