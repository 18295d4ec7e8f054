"""What the engine itself has recorded inside a payload, read back, or a refusal that says where to look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import MsgspecError, json

from perdure.errors import PayloadError
from perdure.kernel.unopened import why_unopened

T = TypeVar("T")

MALFORMED = (MsgspecError, UnicodeDecodeError, RecursionError)
"""What a reader of JSON raises for bytes that are none, or none of the right shape."""


def reader(type: type[T], what: str) -> Callable[[bytes], T]:
    """The reader for one kind of record; it raises PayloadError for bytes that another hand has changed."""
    read = json.Decoder(type).decode

    def recorded(raw: bytes) -> T:
        try:
            return read(raw)
        except MALFORMED as error:
            raise unreadable(raw, what, error) from error

    return recorded


def unreadable(raw: bytes, what: str, error: BaseException) -> Exception:
    """The error for a record that cannot be read: it is sealed, damaged, or of another version."""
    return why_unopened(raw) or PayloadError(
        f"{what} cannot be read: {error!s:.500}. `perdure history` shows its bytes: restore them from a backup, or run "
        "the version of Perdure that wrote them."
    )


_slots = reader(dict[str, Any], "the steps that a row says are under way")


def under_way(progress: bytes | None) -> dict[str, Any]:
    """The steps in flight by name and place (``charge:1``), each with what it has reported last."""
    return {} if progress is None else _slots(progress)
