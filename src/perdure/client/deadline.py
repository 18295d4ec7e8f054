"""A deadline that a person sets: in so many seconds, at a time, or none; given in Python, or in JSON."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.client import validation
from perdure.clock import Duration
from perdure.errors import InvalidInput
from perdure.kernel.plain import shown

SetDeadline = Callable[[int], int | None]
"""The deadline in microseconds, or None, from the store's time when the command is carried out."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NONE = "none"


def deadline(given: Any) -> SetDeadline:
    """A deadline from seconds or a timedelta, from a datetime with its zone, or from None; raises InvalidInput."""
    if given is None:
        return lambda now: None
    if isinstance(given, datetime):
        if given.utcoffset() is None:
            raise InvalidInput(
                f"the deadline {given} has no time zone. Give it with one, like "
                "datetime.now(UTC) + timedelta(hours=2), or give seconds from now."
            )
        at = (given - _EPOCH) // timedelta(microseconds=1)
        return lambda now: at
    wait = validation.duration(given, "the deadline")
    return lambda now: now + wait


def from_json(given: Any) -> Duration | datetime | None:
    """The same from seconds, from the text of a time with its zone, or from ``none``; raises InvalidInput."""
    if given == _NONE:
        return None
    if not isinstance(given, str):
        return given or 0.0  # no seconds are no deadline, and are refused as such
    at = None
    with suppress(ValueError):
        at = datetime.fromisoformat(given)
    if at is None or at.utcoffset() is None:
        raise InvalidInput(
            f"the deadline is {shown(given)}. Give seconds from now, a time with its zone, like "
            "2026-12-31T12:00+01:00, or none."
        )
    return at


def set_to(given: Any) -> SetDeadline:
    """The deadline of an operation, as its plan has it; raises InvalidInput."""
    return deadline(from_json(given))
