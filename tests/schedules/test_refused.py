"""A schedule that makes no sense is refused, with what to do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from perdure import Schedule
from perdure.errors import DefinitionError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)
REFUSED: dict[str, list[dict[str, Any]]] = {
    "Give exactly one of them.": [
        {}, {"cron": "0 3 * * *", "every": 60}, {"cron": "0 3 * * *", "at": NOON}, {"every": 60, "at": NOON},
        {"cron": "0 3 * * *", "every": 60, "at": NOON},
    ],
    "Write minute, hour, day, month and weekday: '0 3 * * *'.": [
        {"cron": cron}
        for cron in (
            "", "every day", "5", "* * * *", "* * * * * * *", "99 * * * *", "60 * * * *", "* 24 * * *", "0 0 0 * *",
            "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "1, * * * *",
            "x * * * *", "0 0 * * mo", "@dayly", "9" * 5000 + " * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *",
        )
    ],
    "'0 0 */30 2 1#5' never comes. Correct its day or month.": [{"cron": "0 0 */30 2 1#5"}],
    "Give a text like '0 3 * * *'.": [{"cron": 5}, {"cron": b"0 3 * * *"}],
    "Write one like 'Europe/Berlin'.": [
        {"cron": "0 3 * * *", "zone": zone}
        for zone in ("Mars/Olympus", "", "Europe", "../UTC", "a" * 5000, "\ud800", "a\0b", 5, None, [], "localtime")
    ],
    "Give a datetime with tzinfo, like UTC.": [{"at": at} for at in (NAIVE, "2026-01-01", 0, date(2026, 1, 1))],
    "Give a time from 1970 to 8999.": [{"at": datetime(year, 6, 1, tzinfo=UTC)} for year in (1, 1969, 9001, 9999)],
    "Give seconds or a timedelta, 1 s or more.": [
        {"every": every}
        for every in (0, 0.999, -60, True, "60", timedelta(), timedelta(days=-1), float("nan"), float("inf"), 1e11)
    ],
    "Give seconds or a timedelta, 0 s or more.": [
        {"every": 60, name: wrong} for name in ("offset", "jitter", "catch_up") for wrong in (-1, True, "1", None)
    ],
    "Write 'skip', 'queue', 'cancel' or 'allow'.": [{"every": 60, "overlap": wrong} for wrong in ("wait", None, [])],
    "Leave out limit=, or say what happens when it is reached.": [{"every": 60, "overlap": "allow", "limit": 2}],
    "Give dates: [date(2026, 12, 25)].": [
        {"cron": "0 3 * * *", "skip_days": wrong} for wrong in (["2026-12-25"], [NOON], "2026-12-25", 5, None)
    ],
    "Leave it out, or write the times as a cron expression.": [
        given | {"skip_days": [NOON.date()]} for given in ({"every": 60}, {"at": NOON})
    ],
    "Give at most 1,000, those of a few years.": [
        {"cron": "0 3 * * *", "skip_days": [NOON.date() + timedelta(days=n) for n in range(1_001)]}
    ],
    "Give a whole number from 1, or leave it out.": [
        {"every": 60, name: wrong} for name in ("limit", "stop_after") for wrong in (0, -1, True, 1.5, "1")
    ],
}  # fmt: skip
"""What an error says is to be done, and what is refused so."""


@pytest.mark.parametrize(("given", "advice"), [(one, advice) for advice, every in REFUSED.items() for one in every])
def test_a_schedule_that_makes_no_sense_is_refused_with_what_to_do(given: dict[str, Any], advice: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Schedule(**given)
    assert advice in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("count", [0, -1, 1001, True, 1.0, None])
def test_a_count_of_next_times_that_makes_no_sense_is_refused(count: Any) -> None:
    with pytest.raises(DefinitionError, match=r"give a whole number from 1 to 1,000\."):
        Schedule(every=60).next(count)


@pytest.mark.parametrize("since", [NAIVE, "2026-01-01", 0, NOON.replace(year=1), NOON.replace(year=9999)])
def test_next_times_after_what_is_no_time_with_a_zone_or_far_away_are_refused(since: Any) -> None:
    for schedule in (Schedule(every=60), Schedule("0 3 * * *", zone="America/New_York")):
        with pytest.raises(DefinitionError, match=r"after=.*\. Give a (datetime with tzinfo|time from 1970)"):
            schedule.next(after=since)
