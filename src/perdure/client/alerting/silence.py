"""Silence: the hours of each day in which a rule sends nothing, by the clocks of a zone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from perdure.authoring.schedule.timetable import zone_of
from perdure.client.view import instant
from perdure.errors import InvalidInput
from perdure.kernel.plain import shown

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)(?: +(\S+))?")
_DAY = timedelta(days=1)
WINDOWS = 20


def checked_hours(given: Iterable[Any]) -> tuple[str, ...]:
    """Daily hours like ``22:00-06:00 Europe/Zurich``, each as it is stored, with its zone; raises InvalidInput."""
    hours = tuple(map(_checked, given))
    if len(hours) > WINDOWS:
        raise InvalidInput(f"there are {len(hours)} silent hours. Give at most {WINDOWS}.")
    return hours


def _checked(given: Any) -> str:
    typed = _HOURS.fullmatch(given.strip()) if isinstance(given, str) else None
    if typed is None or _length(typed) == timedelta(0) or (typed[3] == "24" and typed[4] != "00"):
        raise InvalidInput(f"{shown(given)} are no hours of a day. Write them like '22:00-06:00 Europe/Zurich'.")
    zone = typed[5] or "UTC"
    try:
        zone_of(zone if zone != "localtime" else "")  # which is another zone on each machine
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(f"{shown(zone)} is not a known time zone. Write one like 'Europe/Zurich'.") from None
    return f"{typed[1]}:{typed[2]}-{typed[3]}:{typed[4]} {zone}"


def silent_at(hours: Iterable[str], now: int) -> bool:
    """Whether one of the checked hours holds at this time of the store."""
    return any(_holds(one, now) for one in hours)


def _holds(hours: str, now: int) -> bool:
    typed = _HOURS.fullmatch(hours)
    if typed is None:
        return False
    there = instant(now).astimezone(zone_of(typed[5] or "UTC"))
    time = timedelta(hours=there.hour, minutes=there.minute)
    return (time - _since_midnight(typed[1], typed[2])) % _DAY < _length(typed)


def _length(typed: re.Match[str]) -> timedelta:
    """How long they are, over midnight if they end before they begin; nothing if they end where they begin."""
    begin, end = _since_midnight(typed[1], typed[2]), _since_midnight(typed[3], typed[4])
    return end - begin if end > begin else (end - begin) % _DAY


def _since_midnight(hour: str, minute: str) -> timedelta:
    return timedelta(hours=int(hour), minutes=int(minute))
