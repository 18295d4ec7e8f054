"""A record of an event stream, as consumers get it: one event of a process, or one change of its life."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import json

from perdure.errors import PayloadError
from perdure.kernel.names import id_text
from perdure.kernel.stored import ENDS_OF_TIME, MALFORMED, why_undecodable
from perdure.kernel.stream import LOST, LoggedEvent, type_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One event of a process, or one change of its life, as a consumer of an event stream gets it.

    ``position`` is the record's place in all streams of the database: a record that comes twice has the same one, and
    those of one process come in the order of their positions. ``process`` is the id, ``kind`` the workflow's name,
    ``key`` the caller's own id and ``version`` that of the code, as they were when the record was read. ``number`` is
    the event's number in this ``run``; 0 for records that are no events of the history: ``created``, ``begun`` and
    ``removed``. All other values of ``type`` are those of ``perdure history --json``. ``at`` is in UTC, None for a time
    that no calendar has. ``place`` and ``name`` say which step, timer or message. ``payload`` is the plain value: the
    input, a result, a failure, or who gave an order; if it cannot be read it is None, and ``trouble`` says why.
    """

    position: int
    process: str
    kind: str
    key: str | None
    version: str
    run: int
    number: int
    type: str
    at: datetime | None
    place: str
    name: str
    payload: Any = None
    trouble: str | None = None

    def as_json(self) -> bytes:
        """The record as a JSON object, as sinks send it."""
        shown = asdict(self)
        if self.trouble is None:
            del shown["trouble"]
        return json.encode(shown)


def record_of(logged: LoggedEvent) -> StreamRecord:
    """The record of what was logged; it never raises: what cannot be read is told in the record."""
    event = logged.event
    type = type_text(event.type)
    payload, trouble = _plain(event.payload)
    if type == LOST:
        trouble = "the event is not in the database any more, although no command has removed it: it was damaged"
    at = None if event.at in ENDS_OF_TIME else _instant(event.at)
    return StreamRecord(
        logged.position, id_text(logged.process), str(logged.kind), None if logged.key is None else str(logged.key),
        str(logged.code), logged.run, event.number, type, at, str(event.place), str(event.name), payload, trouble,
    )  # fmt: skip


def _plain(raw: bytes | None) -> tuple[Any, str | None]:
    """The value of a payload, and why there is none."""
    if raw is None:
        return None, None
    if (why := why_undecodable(raw)) is not None:
        return None, str(why)
    try:
        return json.decode(raw), None
    except MALFORMED as error:
        return None, str(PayloadError(f"the payload is not JSON: {error}. Restore the row from a backup."))


def _instant(at: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return None
