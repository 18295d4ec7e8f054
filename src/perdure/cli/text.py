"""Times, durations and values as people read them; no stored text can steer the terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.errors import InvalidInput
from perdure.kernel.failure import Failure, safe_text
from perdure.kernel.stored import why_undecodable
from perdure.limits import FARTHEST_SECONDS

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))
_DURATIONS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_TYPED = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) *(ms|s|m|min|h|d)?", re.ASCII)
VALUE_BYTES = 300


def span(seconds: float) -> str:
    """A duration in its two largest units: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 d 4 h``."""
    seconds = abs(seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts = []
    for name, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {name}")
            left %= size
    if left and len(parts) < 2:
        parts.append(f"{left} s")
    return " ".join(parts[:2])


def when(instant: datetime | None, now: datetime) -> str:
    """A time as its distance from now: ``12 s ago``, ``in 2 d 4 h``; empty if there is none."""
    if instant is None:
        return ""
    away = (instant - now).total_seconds()
    if abs(away) < 0.05:
        return "now"
    return f"in {span(away)}" if away > 0 else f"{span(away)} ago"


def clock(instant: datetime | None, *, utc: bool) -> str:
    """A time to the second with its zone, in the machine's time zone or in UTC; empty if there is none."""
    return "" if instant is None else _zoned(instant, utc).strftime("%Y-%m-%d %H:%M:%S %Z")


def _zoned(instant: datetime, utc: bool) -> datetime:
    try:
        return instant.astimezone(UTC if utc else None)
    except (OverflowError, ValueError, OSError):  # the first or last day that there is, which has no local time
        return instant.astimezone(UTC)


def value(thing: Any, limit: int = VALUE_BYTES) -> str:
    """A value as JSON, cut to ``limit`` bytes."""
    return safe_text(msgspec.json.encode(thing).decode(), limit)


def cut(words: str, limit: int) -> str:
    """Words in at most ``limit`` bytes, without characters that could steer the terminal."""
    return safe_text(words, limit)


def payload(raw: bytes | None, limit: int = VALUE_BYTES) -> str:
    """A stored payload, cut to ``limit`` bytes; one that is not text is shown as its length."""
    if raw is None:
        return ""
    why = why_undecodable(raw)
    if why is not None:
        return safe_text(f"(unreadable: {why})", max(limit, VALUE_BYTES))
    try:
        return safe_text(raw.decode(), limit)
    except UnicodeDecodeError:
        return f"({len(raw)} bytes that are not text)"


def failure(failed: Failure, limit: int = 2_000) -> str:
    """A failure as its class and its words."""
    return safe_text(f"{failed.type}: {failed.message}".rstrip(": "), limit)


def seconds_of(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``15m``, ``2h`` or ``7d``; raises InvalidInput."""
    typed = _TYPED.fullmatch(text.strip())
    seconds = FARTHEST_SECONDS + 1 if typed is None else float(typed[1]) * _DURATIONS[typed[2]]
    if seconds > FARTHEST_SECONDS:
        raise InvalidInput(f"{text!r:.40} is not a duration, or is too long; write 90s, 15m, 2h or 7d")
    return seconds
