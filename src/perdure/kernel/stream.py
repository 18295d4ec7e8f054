"""An event stream: a named consumer of what happens to all processes, and how far it has come.

Every event and every change of a process's life gets a position in one order, in which those of one process stand in
the order of its commits. A stream is a row with a position: what stands behind it was not delivered yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.errors import InvalidInput
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import check_name
from perdure.kernel.stored import UnknownNumber

CREATED, BEGUN, REMOVED = 101, 102, 103
"""The types of records that stand for no event of a history; the triggers of both databases write these numbers."""

LOST = "lost"
"""The type of a record whose event is not there: a damaged database. It is told, and keeps nothing else waiting."""

_LIFECYCLE = (
    EventType.RUN_OPENED, EventType.HELD, EventType.RESUMED, EventType.GIVEN_UP, EventType.REPAIRED,
    EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED, EventType.BROKEN, EventType.TERMINATED,
    EventType.EXPIRED, EventType.REVIVED, EventType.RUN_RETRIED, EventType.FIELDS_EDITED,
)  # fmt: skip
LIFECYCLE: tuple[int, ...] = (CREATED, BEGUN, REMOVED, *map(int, _LIFECYCLE))
"""The types of records that tell how a process's life goes on, without what it does."""

_OWN: Mapping[int, str] = MappingProxyType({0: LOST, CREATED: "created", BEGUN: "begun", REMOVED: "removed"})
_EVENTS: Mapping[int, EventType] = MappingProxyType({int(type): type for type in EventType})

UNFILLED = -(2**62)
"""The position of a stream that begins with what is stored, until ``fill_stream`` has put that into the log."""

_FILLS = "put, which looks for what is stored"
_NO_END = 221_845_392_000_000_000
"""The year 9000: until then nobody reads an unfilled stream, and no worker of an older release does."""

MOST_FAILURES = 1_000_000
ERROR_CHARACTERS = 500
"""What a row keeps of failures: no more than so many, and no more of the last one's words."""

_KINDS_BYTES = 8192


class EventStream(Struct, frozen=True, gc=False):
    """One row of the table ``event_stream``. Times are microseconds by the store's clock.

    ``kinds`` is a JSON array of the kinds of processes that are wanted; empty for all but queued steps and the
    library's own. ``lifecycle`` leaves out all but the records of a life cycle. ``sink`` is where workers deliver;
    empty if a program reads. What stands up to ``position`` was delivered; None, when it is made, stands for all that
    was committed by then. ``owner`` reads it until ``until``. It has failed ``failures`` times in a row, last by
    ``error``. ``who``, ``why`` and ``origin`` describe the last change by a person, made at ``changed_at``.
    ``removed`` takes the row away. While it is ``unfilled``, what is stored and comes first is not in the log yet.
    """

    name: str
    version: int = 0
    kinds: str = ""
    lifecycle: bool = False
    sink: str = ""
    position: int | None = None
    owner: str = ""
    until: int = 0
    failures: int = 0
    error: str = ""
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""
    removed: bool = False

    def next(self, **changes: object) -> EventStream:
        """The next version of the row."""
        return replace(self, version=self.version + 1, **changes)

    def begun_with_what_is_stored(self) -> EventStream:
        """The row as one that nobody reads, and that keeps the whole log, until what is stored stands there too."""
        return replace(self, position=UNFILLED, owner=_FILLS, until=_NO_END)

    @property
    def unfilled(self) -> bool:
        """Whether it is to begin with what is stored, and that was not put into the log yet."""
        return self.position == UNFILLED

    def wanted_kinds(self) -> list[str] | None:
        """The kinds that are wanted; None for all but queued steps and the library's own."""
        return json.decode(self.kinds, type=list[str]) if self.kinds else None

    def wanted_types(self) -> Sequence[int] | None:
        """The types that are wanted; None for all."""
        return LIFECYCLE if self.lifecycle else None

    def held_by_other(self, reader: str, now: int) -> bool:
        """Whether another reader has it now."""
        return self.owner not in ("", reader) and self.until > now

    def text(self) -> str:
        """The stream for a log line."""
        return f"event stream {self.name}"


def type_of(number: int | None) -> Any:
    """The type of a logged event by the number that the database has; None if the event is not there."""
    return _EVENTS.get(number or 0) or UnknownNumber(number or 0)


def type_text(type: int) -> str:
    """What a record says of its type: ``created``, or the name of an event's type as in ``perdure history --json``."""
    return _OWN.get(type) or str(type_of(type).name).lower()


def wanted(kinds: Sequence[str] | None) -> str:
    """The kinds as a row keeps them; raises InvalidInput, InvalidKey."""
    if kinds is None:
        return ""
    if isinstance(kinds, str) or not kinds:
        raise InvalidInput("`kinds` is not a list of names. Give one, as in kinds=['order'], or leave it out for all.")
    text = json.encode(sorted({check_name(kind, "the name of a kind") for kind in kinds})).decode()
    if len(text) > _KINDS_BYTES:
        raise InvalidInput(
            f"the names of the kinds have {len(text)} bytes; {_KINDS_BYTES} are allowed. Leave them out."
        )
    return text


class LoggedEvent(Struct, frozen=True, gc=False):
    """What a database keeps at one position: an event with its process, or a change of a life cycle, as an event.

    ``kind`` is empty if the process is not known any more; an event that is not there has the type 0.
    """

    position: int
    process: bytes
    kind: str
    key: str | None
    code: str
    run: int
    event: Event


class LogPage(Struct, frozen=True):
    """A portion of what happened, and the position up to which nothing else was wanted."""

    events: tuple[LoggedEvent, ...]
    upto: int
