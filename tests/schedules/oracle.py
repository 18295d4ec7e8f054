"""The cron arithmetic checked by brute force: ``python -m tests.schedules.oracle CHECKS=1000000 SEED=1``.

The oracle walks through real time, minute by minute, asks zoneinfo what the clocks show, and reads expressions by
itself: it shares no line with the timetable, and no library. A check is one minute of one zone for one expression.
``ZONE=Apia`` narrows to the zones whose names contain that; ``ALL=1`` adds every other zone that zoneinfo knows, with
its changes from 1970 to 2037. The first differences are told; the exit code is 1 if there are any.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import chain, cycle, islice
from random import Random
from zoneinfo import ZoneInfo, available_timezones

from perdure.authoring.schedule.timetable import Timetable

DAY = 86_400
HOUR = 3_600
MINUTE = 60
MICROSECONDS = 1_000_000
ASKED = 3
"""Instants from which each expression is asked in a walk."""
TOLD = 20
"""Differences that are told one by one."""

HARD: Mapping[str, Sequence[range]] = {
    "Africa/Cairo": (range(2023, 2026),),  # at midnight: the day begins at one o'clock, or its last hour comes twice
    "Africa/Casablanca": (range(2024, 2027),),  # clocks are put back for the month of Ramadan
    "America/New_York": (range(2024, 2027),),
    "America/St_Johns": (range(2006, 2009),),  # at 00:01, and half an hour beside everybody else
    "Antarctica/Casey": (range(2009, 2012),),  # three hours at once
    "Antarctica/Troll": (range(2024, 2026),),  # two hours
    "Asia/Beirut": (range(2023, 2026),),  # at midnight
    "Asia/Kathmandu": (range(1985, 1987),),  # a quarter of an hour
    "Asia/Pyongyang": (range(2015, 2019),),  # half an hour, with no summer time
    "Australia/Lord_Howe": (range(2024, 2027),),  # half an hour
    "Europe/Berlin": (range(2024, 2027),),
    "Europe/London": (range(1968, 1972),),  # summer time for three years
    "Pacific/Apia": (range(2011, 2013),),  # 2011-12-30 is left out
    "Pacific/Kwajalein": (range(1969, 1970), range(1993, 1994)),  # 23 hours come twice; 1993-08-21 is left out
    "UTC": (range(2024, 2025),),
}
"""Zones whose clocks are hard to follow, each with the years in which they are watched."""

ANY_YEARS = (range(1970, 2038),)

EXPRESSIONS = (
    "* * * * *", "*/7 * * * *", "*/30 1-4 * * *", "0 * * * *", "59 */2 * * *", "* 0,2 * * *", "0-10 */23 * * *",
    "0 0 * * *", "30 2 * * *", "1 0 * * *", "0 3 * * *", "59 23 * * *", "15,45 0-3 * * *", "0-59/20 22-23,0-4 * * *",
    "0/15 1/3 * * *", "30 0 31 12 *", "0 12 30 12 *", "30 2 29 2 *", "0 0,12 1,15,28-31 * *", "10,50 2 * * 6",
    "0 1 * * 0", "0 1 * * 7", "5 0 * * 5-7", "30 1 */2 * 1-5", "0 2 1-7 * */3", "0 2 28-31 3,10 0", "0 0 13 * 5",
    "*/30 2 25-31 10 */7",
)  # fmt: skip
"""Hard ones: in the hours that are left out or come twice, at midnight, with both rules for days."""


class Walk:
    """A stretch of real time in a zone, from ``first`` on: what its clocks show every ``step`` seconds.

    Instants are seconds since 1970; so are local times, as if the clocks were those of UTC.
    """

    def __init__(self, zone: str, first: datetime, last: datetime, step: int = MINUTE) -> None:
        self.zone = zone
        self.first, self.last = int(first.timestamp()), int(last.timestamp())
        self.ticks = range(self.first, self.last, step)
        self.shown: dict[int, list[int]] = {}
        """Local times, each with every instant at which it is shown."""
        self.once: dict[int, int] = {}
        """Local times, each with the first such instant, or the next that the clocks know if it is left out."""
        self.changes: list[int] = []
        clocks = self.clocks = ZoneInfo(zone)
        due = self.first + _offset(self.first, clocks)
        for instant in self.ticks:
            local = instant + _offset(instant, clocks)
            self.shown.setdefault(local, []).append(instant)
            for time in range(min(due, local), local + step, step):
                self.once.setdefault(time, instant)
            if local != due:
                self.changes.append(instant)
            due = local + step
        self.days = sorted({time // DAY for time in self.once})

    def __str__(self) -> str:
        return f"{self.zone} from {_iso(self.first * MICROSECONDS)}"

    def day(self, instant: int) -> int:
        """The day that the clocks show at an instant, counted from 1970."""
        return (instant + _offset(instant, self.clocks)) // DAY

    @property
    def twice(self) -> int:
        """How many local times come twice."""
        return len(self.ticks) - len(self.shown)

    @property
    def left_out(self) -> int:
        """How many local times are left out."""
        return len(self.once) - len(self.shown)


class Expression:
    """A cron expression of five fields, as Debian's cron reads it, or six with seconds before them."""

    def __init__(self, cron: str) -> None:
        *seconds, minute, hour, day, month, weekday = cron.split()
        self.flowing = any(field.startswith("*") for field in (*seconds, minute, hour))
        self.both = day.startswith("*") or weekday.startswith("*")
        self.times = {
            hours * HOUR + minutes * MINUTE + second
            for hours in _numbers(hour, 0, 23)
            for minutes in _numbers(minute, 0, 59)
            for second in (_numbers(seconds[0], 0, 59) if seconds else {0})
        }
        self.days = _numbers(day, 1, 31)
        self.months = _numbers(month, 1, 12)
        self.weekdays = {number % 7 for number in _numbers(weekday, 0, 7)}

    def fits(self, day: int) -> bool:
        """Whether it comes on that day, counted from 1970: 1 January 1970 was a Thursday."""
        on = date(1970, 1, 1) + timedelta(days=day)
        by_date, by_weekday = on.day in self.days, (day + 4) % 7 in self.weekdays
        return on.month in self.months and (by_date and by_weekday if self.both else by_date or by_weekday)

    def instants(self, walk: Walk, skip_days: Collection[date] = ()) -> list[int]:
        """The instants in a walk at which it comes, in microseconds since 1970."""
        times = [day * DAY + time for day in walk.days if self.fits(day) for time in self.times]
        if self.flowing:
            found = {instant for time in times for instant in walk.shown.get(time, ())}
        else:
            found = {walk.once[time] for time in times if time in walk.once}
        skipped = {(day - date(1970, 1, 1)).days for day in skip_days}
        return [instant * MICROSECONDS for instant in sorted(found) if walk.day(instant) not in skipped]


def _numbers(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        low, _, high = span.partition("-")
        if low == "*":
            low, high = str(least), str(most)
        found.update(range(int(low), int(high or (most if step else low)) + 1, int(step or 1)))
    return found


def _offset(instant: int, clocks: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(instant, clocks).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def changes(zone: str, years: range) -> list[datetime]:
    """The days (from midnight to midnight in UTC) in which that zone's clocks are put on or back."""
    clocks = ZoneInfo(zone)
    found, day = [], datetime(years.start, 1, 1, tzinfo=UTC)
    before = _offset(int(day.timestamp()), clocks)
    while day.year in years:
        after = _offset(int(day.timestamp()) + DAY, clocks)
        if after != before:
            found.append(day)
        day, before = day + timedelta(days=1), after
    return found


def walks(zone: str) -> Iterator[Walk]:
    """Three days around each change of a zone's clocks; around the end of February if there is none."""
    spans = HARD.get(zone, ANY_YEARS)
    found = [day for years in spans for day in changes(zone, years)]
    for day in found or [datetime(spans[0].start, 2, 28, tzinfo=UTC)]:
        first, last = day - timedelta(days=1), day + timedelta(days=2)
        walk = Walk(zone, first, last)
        # Where clocks differ from UTC by seconds too, no minute begins together with one of UTC.
        yield Walk(zone, first, last, step=1) if any(time % MINUTE for time in walk.shown) else walk


def drawn(random: Random, walk: Walk) -> str:
    """An expression by chance, of days and hours that the walk is likely to meet."""
    met = [date(1970, 1, 1) + timedelta(days=day) for day in walk.days]
    minute = _field(random, 0, 59, [0, 1, 15, 29, 30, 31, 45, 59])
    hour = _field(random, 0, 23, [0, 1, 2, 3, 23])
    day = "*" if random.random() < 0.5 else _field(random, 1, 31, [on.day for on in met])
    month = "*" if random.random() < 0.8 else _field(random, 1, 12, [on.month for on in met])
    weekday = "*" if random.random() < 0.5 else _field(random, 0, 7, [on.isoweekday() for on in met])
    return f"{minute} {hour} {day} {month} {weekday}"


def _field(random: Random, least: int, most: int, likely: Sequence[int]) -> str:
    def number() -> int:
        return random.choice(likely) if random.random() < 0.7 else random.randint(least, most)

    def term() -> str:
        low, high = sorted((number(), number()))
        step = random.randint(1, max(2, (most - least) // 2))
        forms = [f"{low}", f"{low}", f"{low}-{high}", f"{low}/{step}"]
        if low < high:  # cronsim takes 2-2/9 for 2/9
            forms.append(f"{low}-{high}/{step}")
        return random.choice(forms)

    if random.random() < 0.3:
        return "*" if random.random() < 0.4 else f"*/{random.randint(2, most)}"
    return ",".join(term() for _ in range(random.choice([1, 1, 2, 3])))


def skipped(random: Random, walk: Walk) -> tuple[date, ...]:
    """Days to leave out: mostly none, else some of those that the walk meets."""
    met = [date(1970, 1, 1) + timedelta(days=day) for day in walk.days]
    return () if random.random() < 0.6 else tuple(sorted(random.sample(met, random.randint(1, len(met) - 1))))


def differences(walk: Walk, cron: str, skip_days: tuple[date, ...] = ()) -> list[str]:
    """The instants of a walk at which the timetable and the oracle do not agree."""
    expected = Expression(cron).instants(walk, skip_days)
    timetable = Timetable(cron=cron, zone=walk.zone, skip_days=skip_days)
    found = list(timetable.between(walk.first * MICROSECONDS - 1, walk.last * MICROSECONDS - 1))
    wrong = [f"{_iso(one)} is left out" for one in sorted(set(expected).difference(found))]
    wrong += [f"{_iso(one)} is too much" for one in sorted(set(found).difference(expected))]
    if found != sorted(set(found)):
        wrong.append("the instants are not in order")
    return [f"{walk.zone} '{cron}' {_but_for(skip_days)}: {one}" for one in wrong]


def out_of_step(walk: Walk, cron: str, random: Random, times: int, skip_days: tuple[date, ...] = ()) -> list[str]:
    """The instants, drawn from a walk, after which the timetable does not find the next two of the oracle."""
    expected = Expression(cron).instants(walk, skip_days)
    timetable = Timetable(cron=cron, zone=walk.zone, skip_days=skip_days)
    wrong = []
    for _ in range(times if expected else 0):
        since = min(_instant(walk, expected, random), expected[-1] - 1)
        place = bisect_right(expected, since)
        right = expected[place : place + 2]
        found = list(islice(timetable.after(since), len(right)))
        if found != right:
            after = f"after {_iso(since)} come {', '.join(map(_iso, found))}, not {', '.join(map(_iso, right))}"
            wrong.append(f"{walk.zone} '{cron}' {_but_for(skip_days)}: {after}")
    return wrong


def _but_for(skip_days: tuple[date, ...]) -> str:
    return f"but for {', '.join(map(str, skip_days)) or 'no day'}"


def _instant(walk: Walk, expected: Sequence[int], random: Random) -> int:
    """One of these instants or just beside it, one around a change of the clocks, or any of the walk."""
    near = random.random()
    if near < 0.4:
        found = random.choice(expected) + random.choice([-MICROSECONDS, -1, 0, 1, 999_999])
    elif near < 0.8 and walk.changes:
        around = random.choice(walk.changes) * MICROSECONDS
        found = around + random.choice([random.randrange(-3 * HOUR, 3 * HOUR) * MICROSECONDS, -1, 0, 1])
    else:
        found = random.randrange(walk.first * MICROSECONDS, walk.last * MICROSECONDS)
    return max(found, walk.first * MICROSECONDS - 1)


def _iso(instant: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)).isoformat().replace("+00:00", "Z")


def main(words: Sequence[str]) -> int:
    """Compare walk after walk, round after round, until there are enough checks; 1 if any of them differed."""
    given = dict(word.split("=", 1) for word in words)
    most, seed = int(given.get("CHECKS") or 1_000_000), int(given.get("SEED") or 1)
    every = [*HARD, *sorted(available_timezones() - set(HARD) if given.get("ALL") else ())]
    zones = [zone for zone in every if (given.get("ZONE") or "") in zone]
    if not zones:
        raise SystemExit(f"No zone has {given['ZONE']!r} in its name: give ALL=1, or another ZONE.")
    random = Random(seed)
    checks = instants = asked = differed = 0
    for walk in chain.from_iterable(walks(zone) for zone in cycle(zones)):
        for cron in (random.choice(EXPRESSIONS), drawn(random, walk), drawn(random, walk)):
            days = skipped(random, walk)
            wrong = [*differences(walk, cron, days), *out_of_step(walk, cron, random, ASKED, days)]
            for one in wrong[: max(0, TOLD - differed)]:
                print(one, flush=True)
            checks += (walk.last - walk.first) // MINUTE
            came = len(Expression(cron).instants(walk, days))
            instants += came
            asked += ASKED if came else 0
            differed += len(wrong)
        if checks >= most:
            break
    print(
        f"{checks:,} checks, with {instants:,} instants, and {asked:,} instants asked from: {differed:,} differed; "
        f"SEED={seed}"
    )
    return int(bool(differed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
