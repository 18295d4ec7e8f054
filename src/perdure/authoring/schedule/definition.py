"""A schedule as it is written in code: when a workflow is started, and what if the process before still runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfoNotFoundError

from cronsim import CronSimError
from msgspec import Struct

from perdure.authoring.schedule.timetable import DAY, LAST_INSTANT, LAST_YEAR, Timetable, zone_of
from perdure.clock import SECOND, Duration, in_seconds, microseconds
from perdure.errors import DefinitionError
from perdure.kernel.plain import shown
from perdure.limits import FARTHEST_SECONDS, SKIPPED_DAYS
from perdure.turns.verbs import now

if TYPE_CHECKING:
    from perdure.authoring.start import Startable

Overlap: TypeAlias = Literal["skip", "queue", "cancel", "allow"]
"""What becomes of an occurrence while as many processes of its schedule still run as may: it is left out, it waits for
one of them to end, the oldest of them is asked to cancel, or it is started all the same."""

NICKNAMES: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
TIME_PARAMETER = "scheduled_at"
"""A workflow with a parameter of that name is given the instant of its occurrence."""
_SINGLE = r"\b(\w+)-\1/\d+"
"""A range of one value with a step, which the library reads as if it had no end."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 1_000


class Plan(Struct, frozen=True):
    """What a schedule says, as it is stored; ``catch_up``, ``jitter`` and ``late_after`` are microseconds."""

    timetable: Timetable
    overlap: Overlap = "skip"
    limit: int = 1
    catch_up: int = microseconds(DAY.total_seconds())
    jitter: int = 0
    stop_after: int | None = None
    late_after: int | None = None


class Schedule:
    """When a workflow is started again and again: by a cron expression, every so often, or once at a time.

    ::

        nightly = Schedule("0 3 * * *", zone="Europe/Berlin")
        await engine.schedules.put("nightly", nightly, report, "daily")

    ``cron`` has five fields (minute, hour, day, month, weekday), six with seconds before them, or is a nickname like
    ``@daily``. It goes by the clocks of ``zone``: an hour that is left out when they are put on runs at once after the
    gap, one that comes twice runs the first time; an expression whose second, minute or hour begins with a star runs
    whenever its time is shown. On the dates in ``skip_days``, holidays for example, nothing comes: at most 1,000, and
    with ``cron`` alone. ``every`` and ``offset`` are durations, counted from 1970 in UTC; ``at`` is a time with a zone.

    ``overlap`` says what happens while ``limit`` processes of the schedule still run (default: 1): the occurrence is
    left out (``"skip"``), waits (``"queue"``), or the oldest of them is asked to cancel (``"cancel"``); with
    ``"allow"`` there is no limit. Each occurrence is put off by a time of its own below ``jitter``; one that is later
    than ``catch_up`` after its time and the jitter is missed (default: a day; 10 s are always allowed). After
    ``stop_after`` failed processes in a row the schedule pauses. For an occurrence that begins more than ``late_after``
    after its time and the jitter, the workflow ``late`` is started instead, with the same arguments. Durations are
    seconds or timedeltas. Raises DefinitionError.
    """

    def __init__(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        offset: Duration = 0,
        at: datetime | None = None,
        zone: str = "UTC",
        skip_days: Collection[date] = (),
        overlap: Overlap = "skip",
        limit: int | None = None,
        catch_up: Duration = DAY,
        jitter: Duration = 0,
        stop_after: int | None = None,
        late_after: Duration | None = None,
        late: Startable[..., Any] | None = None,
    ) -> None:
        if [cron, every, at].count(None) != 2:
            raise DefinitionError("a schedule has one of cron, every= and at=. Give exactly one of them.")
        if cron is not None:
            timetable = Timetable(cron=_expression(cron, zone), zone=zone, skip_days=_days(skip_days))
        elif at is not None:
            timetable = Timetable(at=instant_of(at, "at"))
        else:
            timetable = Timetable(every=_duration("every", every, SECOND), offset=_duration("offset", offset))
        if every is None and in_seconds(offset) != 0:
            raise DefinitionError("offset= is for every=. Leave it out: cron and at= say their times themselves.")
        if cron is None and zone != "UTC":
            raise DefinitionError("zone= is for cron. Leave it out: every= counts in UTC, and at= says its own zone.")
        if cron is None and skip_days:
            raise DefinitionError("skip_days= is for cron. Leave it out, or write the times as a cron expression.")
        if overlap not in get_args(Overlap):
            raise DefinitionError(f"overlap={overlap!r:.100} is unknown. Write 'skip', 'queue', 'cancel' or 'allow'.")
        if overlap == "allow" and limit is not None:
            raise DefinitionError(
                "overlap='allow' has no limit. Leave out limit=, or say what happens when it is reached."
            )
        self.plan = Plan(
            timetable,
            overlap,
            _count("limit", limit) or 1,
            _duration("catch_up", catch_up),
            _duration("jitter", jitter),
            _count("stop_after", stop_after),
            _late_after(late_after, late, catch_up),
        )
        self.late = late

    def __repr__(self) -> str:
        return f"<Schedule {in_words(self.plan.timetable)}>"

    def next(self, count: int = 1, *, after: datetime | None = None) -> list[datetime]:
        """The next times in UTC, at most 1,000 of them, after the given one (default: now); without jitter."""
        since = now() if after is None else after
        if type(count) is not int or not 1 <= count <= _MOST:
            raise DefinitionError(f"next({shown(count)}): give a whole number from 1 to {_MOST:,}.")
        return [moment(instant) for instant in islice(self.plan.timetable.after(instant_of(since, "after")), count)]


def moment(instant: int) -> datetime:
    """An instant in microseconds since 1970 as a time in UTC."""
    return _EPOCH + timedelta(microseconds=instant)


def iso(instant: int) -> str:
    """An instant as a text: ``2026-11-25T03:00:00Z``."""
    return moment(instant).isoformat().replace("+00:00", "Z")


def _expression(cron: Any, zone: Any) -> str:
    if not isinstance(cron, str):
        raise DefinitionError(f"cron is {shown(cron)}. Give a text like '0 3 * * *'.")
    fields = " ".join(NICKNAMES.get(cron.strip().lower(), cron).split())
    try:
        zone_of(zone if zone != "localtime" else "")  # which is another zone on each machine
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise DefinitionError(f"zone={zone!r:.100} is not a known time zone. Write one like 'Europe/Berlin'.") from None
    try:
        if not 5 <= len(fields.split()) <= 6:
            raise ValueError(f"it has {len(fields.split())} fields")
        if single := re.search(_SINGLE, fields):
            raise ValueError(f"the range {single[0]} has one value, and no step; write {single[1]}")
        soon = next(Timetable(cron=fields, zone=zone).after(0), None)
    except (CronSimError, ValueError) as error:
        raise DefinitionError(
            f"{cron!r:.100} is not a cron expression: {error!s:.100}. "
            "Write minute, hour, day, month and weekday: '0 3 * * *'."
        ) from None
    if soon is None:
        raise DefinitionError(f"{cron!r:.100} never comes. Correct its day or month.")
    return fields


def _days(given: Any) -> tuple[date, ...]:
    """Dates in order, each once; raises DefinitionError."""
    days = sorted(set(given)) if isinstance(given, Collection) and all(type(day) is date for day in given) else None
    if days is None:
        raise DefinitionError(f"skip_days={shown(given)}. Give dates: [date(2026, 12, 25)].")
    if len(days) > SKIPPED_DAYS:
        raise DefinitionError(
            f"skip_days has {len(days):,} dates. Give at most {SKIPPED_DAYS:,}, those of a few years."
        )
    return tuple(days)


def in_words(timetable: Timetable) -> str:
    """When a schedule comes round, for people."""
    if timetable.cron:
        days = len(timetable.skip_days)
        left_out = f", but for {days:,} day{'s' * (days > 1)}" if days else ""
        return f"{timetable.cron} {timetable.zone}{left_out}"
    if timetable.at is not None:
        return f"at {iso(timetable.at)}"
    later = f", {_span(timetable.offset)} later" if timetable.offset else ""
    return f"every {_span(timetable.every)}{later}"


def _span(duration: int) -> str:
    """Microseconds as people say them: ``10 min``, ``36 h``, ``90 s``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if duration % (size * SECOND) == 0 and duration:
            return f"{duration // (size * SECOND)} {unit}"
    return f"{duration / SECOND:.6f}".rstrip("0").rstrip(".") + " s"


def instant_of(at: Any, what: str) -> int:
    """A time with a zone in microseconds since 1970; raises DefinitionError."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise DefinitionError(f"{what}={shown(at)} is not a time with a zone. Give a datetime with tzinfo, like UTC.")
    instant = (at - _EPOCH) // timedelta(microseconds=1)
    if not 0 <= instant <= LAST_INSTANT:
        raise DefinitionError(f"{what}={shown(at)} is too far away. Give a time from 1970 to {LAST_YEAR - 1}.")
    return instant


def _duration(what: str, given: Any, least: int = 0) -> int:
    seconds = in_seconds(given)
    right = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not right or not least / SECOND <= seconds <= FARTHEST_SECONDS:
        raise DefinitionError(f"{what}={shown(given)}. Give seconds or a timedelta, {least // SECOND} s or more.")
    return microseconds(seconds)


def _late_after(given: Any, late: Any, catch_up: Any) -> int | None:
    if (given is None) != (late is None):
        raise DefinitionError("late_after= and late= belong together: after how long, and what is started then.")
    if given is None:
        return None
    after = _duration("late_after", given)
    if after >= _duration("catch_up", catch_up):
        raise DefinitionError(
            f"late_after={shown(given)} is not below catch_up, after which nothing is started. Make catch_up longer."
        )
    return after


def _count(what: str, given: Any) -> int | None:
    if given is not None and (type(given) is not int or given < 1):
        raise DefinitionError(f"{what}={shown(given)}. Give a whole number from 1, or leave it out.")
    return given
