"""Entries to payloads: values, calls, failures, attributes, and the records that the engine itself keeps there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from perdure.authoring.task import task_of
from perdure.kernel import plain
from perdure.kernel.call_shape import CallShape
from perdure.kernel.child import begun
from perdure.kernel.command import until_of
from perdure.kernel.diagnosis import next_mover
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType, origin_of
from perdure.kernel.patch import taken_in
from perdure.kernel.payload import decode, digest, encode
from perdure.kernel.process import Process, merged, missing
from perdure.kernel.retry import decode_attempt
from perdure.kernel.run import opening_of
from perdure.kernel.soundness import unsound
from perdure.kernel.worker import Backlog, WorkerRow, mistakable, unhosted
from perdure.store.sqlite.row import check_attributes
from tests.fuzz.entry import Entry, refused, same

ID = bytes(range(16))


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(Struct):
    street: str
    number: int | None = None


class Tagged(Struct, tag=True):
    n: int


class Other(Struct, tag=True, array_like=True):
    n: float
    rest: list[str] = []


@dataclass
class Order:
    id: UUID
    at: datetime
    day: date
    hour: time
    span: timedelta
    price: Decimal
    colour: Colour
    where: Address
    picture: bytes = b""
    tags: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    way: Literal["air", "sea"] = "air"
    some: dict[str, float | None] | UnsetType = UNSET


TYPES: tuple[Any, ...] = (
    Any, str, int, float, bool, None, bytes, UUID, datetime, date, time, timedelta, Decimal, Colour, Address, Order,
    Tagged | Other, list[int], dict[str, Any], tuple[int, ...], set[str], int | None, dict[int, str], list[Any] | str,
)  # fmt: skip
"""The first byte of what is fed chooses one."""


async def call(
    a: int, b: str = "x", c: Order | None = None, *, when: datetime | None = None, n: tuple[float, ...] = ()
) -> None:
    """What the calls are made of."""


SHAPE = CallShape(call)


def _value(raw: bytes) -> None:
    type = TYPES[raw[0] % len(TYPES)] if raw else Any
    with refused():
        value = decode(raw[1:], type)
        again = encode(value, type=type)
        if not plain.same(value, decode(again, type)):
            raise AssertionError(f"{value!r:.300} came back as {decode(again, type)!r:.300}")
        same(again, encode(decode(again, type), type=type), "the canonical JSON")
        same(digest(again), digest(encode(decode(again))), "the digest")


def _call(raw: bytes) -> None:
    with refused():
        args, kwargs = SHAPE.decode(raw)
        again = SHAPE.encode(args, kwargs)
        same((args, kwargs), SHAPE.decode(again), "the arguments")
        SHAPE.digest(again)


def _result(raw: bytes) -> None:
    if raw:  # no result is stored as nothing
        with refused():
            SHAPE.decode_result(raw)


def _attributes(raw: bytes) -> None:
    with refused():
        check_attributes(raw)
        changes = decode(raw)
        if isinstance(changes, dict):
            stored = merged(None, changes)
            same({}, missing(stored, changes), "the attributes")


def _failure(raw: bytes) -> None:
    with refused():
        failure = Failure.decode(raw)
        same(failure, Failure.decode(failure.encode()), "the failure")
        failure.as_step_error("charge")
    with refused():
        Failure.shown(raw)
    text = raw.decode("utf-8", "surrogateescape")
    failure = Failure.of(ValueError(text))
    same(failure, Failure.decode(failure.encode()), "the failure of an error")


def _event(type: EventType, raw: bytes) -> Event:
    return Event(1, 0, type, 0, "1", "charge", raw)


def _records(raw: bytes) -> None:
    """What the engine has written into a history, damaged: read for a turn, for people, and by the laws."""
    reads: tuple[Callable[[], object], ...] = (
        lambda: decode_attempt(raw),
        lambda: opening_of([_event(EventType.RUN_OPENED, raw)]),
        lambda: begun(_event(EventType.CHILD_STARTED, raw)),
        lambda: taken_in([_event(EventType.PATCHED, raw)]),
        lambda: task_of(raw),
        lambda: next_mover(Process(ID, "k", None, b"[]", owner=ID, progress=raw), 0, {}),
    )
    for read in reads:
        with refused():
            read()
    until_of(Message(ID, ID, MessageType.CANCEL, payload=raw))
    origin_of(Message(ID, ID, MessageType.RESULT, sender=raw))
    unhosted([Backlog("a", "", 1)], [WorkerRow(ID, "w", hosts=raw)])
    mistakable([WorkerRow(ID, "w", hosts=raw)])
    row = Process(ID, "k", None, b"[]", events=2)
    unsound(row, [_event(EventType.RUN_OPENED, raw), _event(EventType.REVIVED, raw)], (), 0)


_FAILURE = Failure("ValueError", "no", 2, trace="at line 1").encode()
_GOOD = (
    b"null",
    b'"a\\u00e9\\ud83d\\ude00"',
    b"-1.5e300",
    b"[1,2.5,true]",
    b'{"a":{"b":[null]},"c":"\\u0000"}',
    b"18446744073709551616",
)
_ORDER = (
    b'{"id":"0192f0c1-2b3c-7def-8123-456789abcdef","at":"2026-01-01T00:00:00.5Z","day":"2024-02-29","hour":"12:00:00+02:00",'
    b'"span":"P1DT0.5S","price":"1.10","colour":"red","where":{"street":"a","number":1},"picture":"AAE=","tags":["x"],'
    b'"pair":[1,"b"],"way":"sea","some":{"a":1.5}}'
)

ENTRIES = (
    Entry(
        "value",
        _value,
        (*(b"\0" + raw for raw in _GOOD), b"\x0f" + _ORDER, b'\x10{"type":"Tagged","n":1}', b'\x10["Other",1.5,[]]'),
    ),
    Entry(
        "call",
        _call,
        (b"[1]", b'[1,"a"]', b'{"":[1],"when":"2026-01-01T00:00:00Z","n":[1.5]}', b'[1,"a",' + _ORDER + b"]"),
    ),
    Entry("result", _result, (b"null", b" null", b"[]")),
    Entry("attributes", _attributes, (b'{"a":1,"b":"c","d":null,"e":1.5,"f":true}', b'{"a":"\\u0000"}')),
    Entry("failure", _failure, (_FAILURE, b'{"type":"","message":"","undone":["a:1"],"owed":[]}', b"\xc1\x01")),
    Entry(
        "records",
        _records,
        (
            b'{"attempt":2,"since":1,"retry_at":2,"failure":' + _FAILURE + b"}",
            b'{"from_run":1,"kept":2,"origins":[[1,1]],"sender":{"who":"a"},"fresh":{"a:1":2},"input":[1],"seen":3}',
            b'{"id":"0192f0c1-2b3c-7def-8123-456789abcdef","abandoned":true}',
            b'{"turn":3}',
            b'{"until":17}',
            b'{"origin":"step","place":"1","digest":"00"}',
            b'{"charge:1":null,"a:2":5}',
            b'[["a","b"]]',
            b'{"worker":"w","died":true,"deaths":1,"alone_deaths":3}',
            b'{"step":"a","key":"k","call":[1],"retry":{"attempts":1},"timeout":1.5}',
        ),
    ),
)
