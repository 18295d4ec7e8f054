"""Stored records as they are read: the engine's own records, payloads that stay sealed, and unknown numbers.

A record that cannot be read is refused with a text that says where to look. A payload that was not opened here stays
the bytes that the store keeps: to read it raises its error, but a sweep or a person's command can pass it on without
loss. A number or status that this Perdure does not know is kept and shown as it is, and never taken for another one:
the tables of the known ones answer it with a value of its own, so that looking up a known one costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from msgspec import MsgspecError, json

from perdure.errors import PayloadError, PerdureError, UnreadablePayload

MARK = b"\xc1"
"""The first byte of a sealed payload. No JSON text begins with it, nor any text in UTF-8."""


class Undecodable(bytes):
    """A sealed payload that was not opened, and ``why``: UnreadablePayload, or StoreUnavailable if only for now.

    ``size`` is how many bytes it takes where it is kept, which may be outside the database.
    """

    why: PerdureError
    size: int

    def __new__(cls, raw: bytes, why: PerdureError, size: int | None = None) -> Undecodable:
        """The bytes ``raw`` as they are stored."""
        made = super().__new__(cls, raw)
        made.why = why
        made.size = len(raw) if size is None else size
        return made


def why_undecodable(raw: bytes | None) -> PerdureError | None:
    """Why this payload was not opened; None if it is open."""
    if isinstance(raw, Undecodable):
        return raw.why
    if raw is not None and raw[:1] == MARK:
        return UnreadablePayload(
            "the payload is sealed, and no codecs are configured here. Name the module that has them in PERDURE_SEAL, "
            "or give them to the engine; if its process is broken by now, run `perdure retry` then."
        )
    return None


def first_trouble(payloads: Iterable[bytes | None]) -> PerdureError | None:
    """The error of the first of these payloads that was not opened; None if all are open."""
    return next((raw.why for raw in payloads if isinstance(raw, Undecodable)), None)


T = TypeVar("T")

MALFORMED = (MsgspecError, UnicodeDecodeError, RecursionError)
"""What a reader of JSON raises for bytes that are not JSON, or not of the right shape."""


def reader(type: type[T], what: str) -> Callable[[bytes], T]:
    """The reader for one kind of record; it raises PayloadError for bytes that were damaged."""
    read = json.Decoder(type).decode

    def recorded(raw: bytes) -> T:
        try:
            return read(raw)
        except MALFORMED as error:
            raise unreadable(raw, what, error) from error

    return recorded


def unreadable(raw: bytes, what: str, error: BaseException) -> Exception:
    """The error for a record that cannot be read: it is sealed, damaged, or of another version."""
    return why_undecodable(raw) or PayloadError(
        f"{what} cannot be read: {error!s:.500}. `perdure history` shows its bytes: restore them from a backup, or run "
        "the version of Perdure that wrote them."
    )


_slots = reader(dict[str, Any], "the steps that a row says are under way")


def under_way(progress: bytes | None) -> dict[str, Any]:
    """The steps in flight by name and place (``charge:1``), each with what it has reported last."""
    return {} if progress is None else _slots(progress)


ENDS_OF_TIME = (-(1 << 63), (1 << 63) - 1)
"""How a store gives a time that is none (``infinity``), or that is too far away for 64 bits of microseconds."""


class UnknownNumber(int):
    """The number of a type of event or message that this Perdure does not know; no known type is equal to it."""

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"UNKNOWN_{int(self)}"


class UnknownStatus(str):
    """A status that this Perdure does not know, as the database has it: its name, or ``7`` where it keeps numbers."""

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"UNKNOWN {self}"

    @property
    def value(self) -> str:
        """What people see instead of a known status: ``unknown (7)``."""
        return f"unknown ({self})"


class Garbled(str):
    """A text that is not UTF-8; the bytes that cannot be read are written in it as numbers."""


class Types(dict[int, T], Generic[T]):
    """The known types by their numbers; every other number is answered as an UnknownNumber.

    ``met`` counts such answers over all tables, so that a reader can tell whether it has met an unknown number.
    """

    met = 0

    def __missing__(self, number: int) -> Any:
        Types.met += 1
        return UnknownNumber(number)


class Statuses(dict[Any, T], Generic[T]):
    """The known statuses by what the database has; everything else is answered as an UnknownStatus."""

    def __missing__(self, stored: object) -> Any:
        return UnknownStatus(stored)
