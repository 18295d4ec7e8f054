"""The fields of queries: what each means for a process, and how its value is compared with what the query gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import isnan
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

from msgspec import Struct

from perdure.client.view import own_attributes, owner_of
from perdure.clock import SECOND, microseconds, seconds_of
from perdure.errors import InvalidInput, PerdureError
from perdure.kernel.diagnosis import NO_QUEUES, Mover, NextMover, Workers, next_mover, steps_under_way
from perdure.kernel.failure import Failure
from perdure.kernel.fingerprint import Cause, cause_of
from perdure.kernel.names import id_text, is_made_of, near
from perdure.kernel.payload import decode
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import QueueLoads
from perdure.limits import FARTHEST_SECONDS

Test: TypeAlias = Callable[[Any], bool]
OPERATORS = frozenset({"=", "==", "!=", "<", "<=", ">", ">=", "~"})
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


@dataclass
class Candidate:
    """A process that a query is asked about, as it is at ``now``; what is costly is looked at when it is asked for."""

    row: Process
    now: int
    workers: Workers = field(default_factory=dict)
    queues: QueueLoads = NO_QUEUES

    @cached_property
    def failure(self) -> Failure | None:
        """What it has failed by, or is broken by."""
        return None if self.row.error is None else Failure.shown(self.row.error)

    @cached_property
    def cause(self) -> Cause | None:
        """What that failure is filed under; to leave out what varies costs more than all else that is looked at."""
        return None if self.failure is None else cause_of(self.row, self.failure)

    @cached_property
    def mover(self) -> Mover:
        """Who moves it next."""
        return next_mover(self.row, self.now, self.workers, self.queues)

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Its search attributes; none if they cannot be read."""
        try:
            found = None if self.row.attributes is None else own_attributes(decode(self.row.attributes))
        except PerdureError:
            found = None
        return found if isinstance(found, dict) else {}

    @cached_property
    def steps(self) -> str:
        """The step that failed; of a process that runs, the steps under way."""
        if self.failure is not None:
            return self.failure.origin[0]
        try:
            return ", ".join(steps_under_way(self.row))
        except PerdureError:
            return ""

    @property
    def worker(self) -> str | None:
        """The worker that holds it; of what has failed or is broken, the one on which it did."""
        if self.row.owner is None and self.failure is not None:
            return self.failure.worker or None
        return owner_of(self.row, self.workers)

    @property
    def overdue(self) -> int | None:
        """For how long somebody should have looked at it already."""
        due_at = self.row.due_at
        late = due_at is not None and not self.row.final and due_at < self.now
        return self.now - due_at if late and due_at is not None else None


class Field(Struct, frozen=True):
    """A field: its ``name``, what it is in words, how it is read, and how its values are compared."""

    name: str
    what: str
    read: Callable[[Candidate], Any]
    test: Callable[[str, str], Test]


# -- how values are compared -----------------------------------------------------------------------------------------


def _text(operator: str, wanted: str) -> Test:
    if operator == "~":
        return lambda value: wanted.lower() in value.lower()
    if operator in ("=", "!="):
        if "*" not in wanted:
            return lambda value: (value == wanted) is (operator == "=")
        parts = wanted.split("*")
        return lambda value: is_made_of(value, parts) is (operator == "=")
    order = _ORDERS[operator]
    return lambda value: order(value, wanted)


def _status(operator: str, wanted: str) -> Test:
    known = [status.value for status in Status]
    if "*" not in wanted and operator in ("=", "!=") and wanted not in known:
        raise InvalidInput(f"there is no status {wanted!r}; there are {', '.join(known)}.")
    return _text(operator, wanted)


def _mover(operator: str, wanted: str) -> Test:
    if "*" not in wanted and operator in ("=", "!=") and wanted not in list(NextMover):
        raise InvalidInput(f"there is no next mover {wanted!r}; there are {', '.join(NextMover)}.")
    return _text(operator, wanted)


def _number(operator: str, wanted: str) -> Test:
    """A number; a whole one is compared exactly, however large it is."""
    number = _read_as(int, wanted)
    if number is None:
        number = _read_as(float, wanted)
    if number is None or isnan(number):
        raise InvalidInput(f"{wanted!r} is not a number.")
    return _ordered(operator, number)


def _read_as(type: Callable[[str], float], wanted: str) -> float | None:
    try:
        return type(wanted)
    except ValueError:
        return None


def _duration(operator: str, wanted: str) -> Test:
    seconds = seconds_of(wanted)
    if seconds is None or seconds > FARTHEST_SECONDS:
        raise InvalidInput(f"{wanted!r:.40} is not a duration, or is too long; write 90s, 15m, 2h or 7d.")
    return _ordered(operator, microseconds(seconds))


def _time(operator: str, wanted: str) -> Test:
    return _ordered(operator, time_of(wanted))


def time_of(wanted: str) -> int:
    """A time in a query as microseconds; raises InvalidInput."""
    try:
        at = datetime.fromisoformat(wanted)
    except ValueError:
        raise InvalidInput(f"{wanted!r} is not a time; write 2026-11-25 or 2026-11-25T03:00:00Z.") from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * SECOND)


def _ordered(operator: str, wanted: float) -> Test:
    if operator == "~":
        raise InvalidInput("`~` asks whether a text contains another, and this is no text.")
    if operator in ("=", "!="):
        return lambda value: (value == wanted) is (operator == "=")
    order = _ORDERS[operator]
    return lambda value: order(value, wanted)


def _value(operator: str, wanted: str) -> Test:
    """Attributes are texts, numbers, booleans or null: each is compared as what it is."""
    text = _text(operator, wanted)
    try:
        number: Test | None = _number(operator, wanted)
    except InvalidInput:
        number = None

    def test(value: Any) -> bool:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return number is not None and number(value)
        return text(value if isinstance(value, str) else {True: "true", False: "false"}.get(value, "null"))

    return test


# -- what they are ---------------------------------------------------------------------------------------------------


def _queue(one: Candidate) -> str | None:
    kind = one.row.kind
    return kind[1:] if kind.startswith("@") else None


def _of_failure(read: Callable[[Failure], Any]) -> Callable[[Candidate], Any]:
    return lambda one: None if one.failure is None else read(one.failure)


_ALL = (
    Field("id", "the process's id", lambda one: id_text(one.row.id), _text),
    Field("kind", "the workflow's name", lambda one: str(one.row.kind), _text),
    Field("version", "the version of its code", lambda one: str(one.row.code), _text),
    Field("key", "its key", lambda one: None if one.row.key is None else str(one.row.key), _text),
    Field("status", "running, held, broken, completed, failed, cancelled", lambda one: one.row.status.value, _status),
    Field("error", "the class of the error that it has failed or is broken by",
          _of_failure(lambda failure: failure.origin[1]), _text),
    Field("message", "the text of that error", _of_failure(lambda failure: failure.message), _text),
    Field("step", "the step that failed; else the steps that run", lambda one: one.steps or None, _text),
    Field("fingerprint", "the fingerprint that `perdure failures` shows",
          lambda one: None if one.cause is None else one.cause.fingerprint, _text),
    Field("mover", f"who moves it next: {', '.join(NextMover)}", lambda one: one.mover.who, _mover),
    Field("waiting", "what it waits for, in words", lambda one: one.mover.text, _text),
    Field("worker", "the worker that holds it, or on which it has failed", lambda one: one.worker, _text),
    Field("queue", "the queue of a queued step", _queue, _text),
    Field("parent", "the id of the process that has started it",
          lambda one: None if one.row.parent is None else id_text(one.row.parent), _text),
    Field("run", "the number of its run", lambda one: one.row.run, _number),
    Field("events", "how many events its run has", lambda one: one.row.events, _number),
    Field("unheard", "messages that its code has not been given", lambda one: one.row.inbox - one.row.seen, _number),
    Field("deaths", "how often its worker died", lambda one: one.row.deaths + max(one.row.alone_deaths, 0), _number),
    Field("priority", "its priority, 0 (first) to 9", lambda one: one.row.priority, _number),
    Field("age", "time since its start: 90s, 15m, 2h, 7d", lambda one: one.now - one.row.created_at, _duration),
    Field("unchanged", "time since its row last changed", lambda one: one.now - one.row.changed_at, _duration),
    Field("overdue", "for how long somebody should have looked at it", lambda one: one.overdue, _duration),
    Field("created", "when it was started: 2026-11-25T03:00:00Z", lambda one: one.row.created_at, _time),
    Field("changed", "when its row last changed", lambda one: one.row.changed_at, _time),
    Field("deadline", "when it must have ended", lambda one: one.row.deadline, _time),
)  # fmt: skip
FIELDS: Mapping[str, Field] = {one.name: one for one in _ALL}
ATTRIBUTES = "attributes."


def field_of(name: str) -> Field:
    """The field of that name, or a search attribute; raises InvalidInput."""
    if name.startswith(ATTRIBUTES) and name != ATTRIBUTES:
        own = name.removeprefix(ATTRIBUTES)
        return Field(name, f"the search attribute {own}", lambda one: one.attributes.get(own), _value)
    if (known := FIELDS.get(name)) is not None:
        return known
    raise InvalidInput(
        f"there is no field {name!r}.{near(name, FIELDS)} There are {', '.join(FIELDS)}, and attributes.NAME."
    )
