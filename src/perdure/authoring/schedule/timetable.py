"""A timetable: the instants at which a schedule comes round, as whole microseconds since 1970 (UTC).

The library ``cronsim`` reads an expression and says which times of the calendar fit it. What these are in a zone whose
clocks are put on or back is decided here: as libraries decide it, hours are skipped, run twice, or searched for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim
from msgspec import Struct

DAY, SECOND, MICROSECOND = timedelta(days=1), timedelta(seconds=1), timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_YEAR = 9000
_END = datetime(LAST_YEAR, 1, 1, tzinfo=UTC)
LAST_INSTANT = (_END - _EPOCH) // MICROSECOND
"""Nothing comes later: behind it a day more or less may be outside of what a datetime can hold."""


class Timetable(Struct, frozen=True):
    """When a schedule comes round: by a ``cron`` expression in a ``zone``, ``every`` so often, or once, ``at`` a time.

    ``every``, ``offset`` and ``at`` are microseconds; multiples of ``every`` are counted from 1970 on, in UTC. By cron
    nothing comes on the days of ``skip_days``, as the clocks of the zone show them.
    """

    cron: str = ""
    zone: str = "UTC"
    every: int = 0
    offset: int = 0
    at: int | None = None
    skip_days: tuple[date, ...] = ()

    def beginning(self, now: int) -> int:
        """What is behind a schedule that is made now: what comes later; a single time also if it has just passed."""
        return now if self.at is None else min(now, self.at - 1)

    def after(self, instant: int) -> Iterator[int]:
        """The instants after that one, in order."""
        if self.at is not None:
            return iter([self.at] if self.at > instant else [])
        if self.every:
            return _multiples(self.every, self.offset, instant)
        return _by_cron(self.cron, zone_of(self.zone), instant, frozenset(self.skip_days))

    def between(self, instant: int, last: int) -> Iterator[int]:
        """The instants after the first one, up to the last."""
        return takewhile(lambda found: found <= last, self.after(instant))


def _multiples(every: int, offset: int, instant: int) -> Iterator[int]:
    found = (instant - offset) // every * every + offset
    while (found := found + every) < LAST_INSTANT:
        yield found


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """The zone of that name; raises ZoneInfoNotFoundError, ValueError."""
    return ZoneInfo(name)


def spread(name: str, instant: int, jitter: int) -> int:
    """How much later than its instant an occurrence of that schedule begins: the same wherever it is asked."""
    if not jitter:
        return 0
    digest = blake2b(f"{name} {instant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % jitter


# -- cron ------------------------------------------------------------------------------------------------------------


def follows_the_clock(cron: str) -> bool:
    """Whether an expression goes by the time that passes (``*/10 * * * *``), and not by hours of the day.

    So it is, as in Debian's cron, if its minute or its hour begins with a star; with seconds, which stand before these,
    also if they do.
    """
    *times, _day, _month, _weekday = cron.split()
    return any(field.startswith("*") for field in times)


def _by_cron(cron: str, zone: ZoneInfo, instant: int, skip_days: Set[date]) -> Iterator[int]:
    """The instants at which the clocks of that zone show a fitting time.

    When clocks are put on, the hours that are left out run at once after the gap; when they are put back, an hour that
    comes twice runs the first time. An expression that follows the clock runs whenever its time is shown.
    """
    flowing = follows_the_clock(cron)
    last = _EPOCH + timedelta(microseconds=instant)
    while (found := _next(cron, zone, last, flowing)) is not None and found < _END:
        last = found
        if skip_days and (day := found.astimezone(zone).date()) in skip_days:
            [midnight] = _instants(datetime.combine(day + DAY, time()), zone, flowing=False)
            last = max(found, midnight - MICROSECOND)  # no search for each second of a day that is left out
        else:
            yield (found - _EPOCH) // MICROSECOND


def _next(cron: str, zone: ZoneInfo, last: datetime, flowing: bool) -> datetime | None:
    local = last.astimezone(zone)
    here = local.replace(tzinfo=None, fold=0)
    best = _first(cron, zone, here, last, flowing)
    twice = _offset(here, zone, 0) - _offset(here, zone, 1)  # more than 0 while an hour comes twice
    if not flowing or local.fold or twice <= timedelta() or (best is not None and best - last < twice):
        return best
    return _first(cron, zone, here - twice, last, flowing)


def _first(cron: str, zone: ZoneInfo, wall: datetime, last: datetime, flowing: bool) -> datetime | None:
    """The first instant after ``last`` at which a fitting time is shown that comes after ``wall`` in the calendar."""
    found = (one for fitting in CronSim(cron, wall) for one in _instants(fitting, zone, flowing) if one > last)
    return next(found, None)


def _instants(wall: datetime, zone: ZoneInfo, flowing: bool) -> list[datetime]:
    """When the clocks show that time: once, never, or twice."""
    first, second = ((wall - _offset(wall, zone, fold)).replace(tzinfo=UTC) for fold in (0, 1))
    if first == second:
        return [first]
    if first < second:
        return [first, second] if flowing else [first]
    return [] if flowing else [_end_of_gap(second, first, zone)]


def _end_of_gap(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """The first second at which the clocks have been put on; they have not at ``low``, and have at ``high``."""
    before = low.astimezone(zone).utcoffset()
    while high - low > SECOND:
        middle = low + (high - low) // 2 // SECOND * SECOND
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def _offset(wall: datetime, zone: ZoneInfo, fold: int) -> timedelta:
    offset = wall.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None
    return offset
