"""A schedule comes round when people expect it, also where clocks are put on or back; what makes no sense is refused.

What people expect is written down twice: as times, for the cases that they ask about, and as an oracle that walks
through every minute; ``python -m tests.schedules.oracle`` is its long form.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice, pairwise
from random import Random
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from perdure import Schedule
from perdure.authoring.schedule.definition import Plan
from perdure.authoring.schedule.timetable import Timetable, follows_the_clock, spread, zone_of
from tests.schedules import oracle
from tests.schedules.oracle import (
    EXPRESSIONS,
    HARD,
    MICROSECONDS,
    Expression,
    Walk,
    differences,
    drawn,
    out_of_step,
    skipped,
)

PEOPLE_ASK = (
    # Put on: 29 March 2026, 02:00 to 03:00. What is left out comes at once after the gap, and once.
    ("Europe/Berlin", "30 2 * * *", "2026-03-28T00:00Z", ["28T01:30", "29T01:00", "30T00:30"]),
    ("Europe/Berlin", "0,30 2 * * *", "2026-03-29T00:00Z", ["29T01:00", "30T00:00", "30T00:30"]),
    ("Europe/Berlin", "0 2,3 * * *", "2026-03-29T00:00Z", ["29T01:00", "30T00:00", "30T01:00"]),
    ("Europe/Berlin", "*/30 2 * * *", "2026-03-28T01:30Z", ["28T01:30", "30T00:00", "30T00:30"]),
    ("Europe/Berlin", "0 * * * *", "2026-03-29T00:00Z", ["29T00:00", "29T01:00", "29T02:00"]),
    # Put back: 25 October 2026, 03:00 to 02:00. What comes twice runs the first time.
    ("Europe/Berlin", "30 2 * * *", "2026-10-24T00:00Z", ["24T00:30", "25T00:30", "26T01:30"]),
    ("Europe/Berlin", "59 2 * * *", "2026-10-25T00:58Z", ["25T00:59", "26T01:59", "27T01:59"]),
    ("Europe/Berlin", "*/30 2 * * *", "2026-10-25T00:30Z", ["25T00:30", "25T01:00", "25T01:30"]),
    ("Europe/Berlin", "0 * * * *", "2026-10-25T00:00Z", ["25T00:00", "25T01:00", "25T02:00"]),
    ("America/New_York", "30 1 * * *", "2026-10-31T05:00Z", ["31T05:30", "01T05:30", "02T06:30"]),
    # Half an hour, at midnight, one minute after it, a whole day.
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:00Z", ["03T15:30", "04T15:15", "05T15:15"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T14:00Z", ["04T14:45", "05T15:15", "06T15:15"]),
    ("Asia/Beirut", "0 0 * * *", "2024-03-30T00:00Z", ["30T22:00", "31T21:00", "01T21:00"]),
    ("Africa/Cairo", "30 23 * * *", "2024-10-31T00:00Z", ["31T20:30", "01T21:30", "02T21:30"]),
    ("America/St_Johns", "0 0 * * *", "2006-10-29T00:00Z", ["29T02:30", "30T03:30", "31T03:30"]),
    ("America/St_Johns", "1 0 * * *", "2006-10-29T00:00Z", ["29T03:31", "30T03:31", "31T03:31"]),
    ("Asia/Kathmandu", "0 0 * * *", "1985-12-31T00:00Z", ["31T18:30", "01T18:15", "02T18:15"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-29T00:00Z", ["29T22:00", "30T10:00", "30T22:00"]),
    ("Pacific/Kwajalein", "0 6 * * *", "1993-08-20T00:00Z", ["20T18:00", "21T12:00", "21T18:00"]),
    ("Europe/London", "30 2 * * *", "1968-02-17T00:00Z", ["17T02:30", "18T02:00", "19T01:30"]),
    # Both days are given: one of them suffices, unless a field begins with a star.
    ("UTC", "0 0 13 * 5", "2026-03-01T00:00Z", ["06T00:00", "13T00:00", "20T00:00"]),
    ("UTC", "0 0 13 * 1", "2026-03-10T00:00Z", ["13T00:00", "16T00:00", "23T00:00"]),
    ("UTC", "0 0 */15 * 1", "2026-03-01T00:00Z", ["16T00:00"]),
    ("UTC", "0 0 1-7 * */7", "2026-03-01T00:00Z", ["01T00:00"]),
)
"""(zone, expression, since when, the next instants: day and time in UTC)."""

SIX_FIELDS = (
    "*/15 59,0-1 * * * *", "30 */20 * * * *", "*/20 30 2 * * *", "0,45 0 2 * * *", "0 30 2 * * *",
    "5-8 0-2,59 1-3 * * *",
)  # fmt: skip

DAY, HOUR = oracle.DAY * MICROSECONDS, oracle.HOUR * MICROSECONDS
MANY = 80
"""Instants of an expression in three days that only the long form has time for."""
PUT_ON, PUT_BACK = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)
"""When clocks change in Berlin."""


def micros(time: datetime | str) -> int:
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def written(instants: list[int]) -> list[str]:
    times = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=one) for one in instants]
    return [f"{time:%dT%H:%M}" if time.second == 0 else f"{time:%dT%H:%M:%S}" for time in times]


def in_zone(instant: int, zone: str) -> datetime:
    return datetime.fromtimestamp(instant // MICROSECONDS, ZoneInfo(zone))


def after(cron: str, zone: str, since: datetime | str, count: int = 3) -> list[str]:
    return written(list(islice(Timetable(cron=cron, zone=zone).after(micros(since)), count)))


def around(zone: str, change: datetime, hours: float, step: int = 60) -> Walk:
    return Walk(zone, change - timedelta(hours=hours), change + timedelta(hours=hours), step)


# -- cron: by hand and by brute force --------------------------------------------------------------------------------


@pytest.mark.parametrize(("zone", "cron", "since", "expected"), PEOPLE_ASK)
def test_an_expression_comes_when_people_expect_it(zone: str, cron: str, since: str, expected: list[str]) -> None:
    first = datetime.fromisoformat(since)
    assert after(cron, zone, first - timedelta(microseconds=1), len(expected)) == expected
    walk = Walk(zone, first, first + timedelta(days=3 if zone != "UTC" else 20))
    assert written(Expression(cron).instants(walk))[: len(expected)] == expected


@pytest.fixture(scope="module", params=HARD)
def walks(request: pytest.FixtureRequest) -> list[Walk]:
    """The first walks through the changes of a zone whose clocks are hard to follow."""
    return list(islice(oracle.walks(request.param), 3))


def test_the_timetable_agrees_with_brute_force_around_each_change_of_the_clocks(walks: list[Walk]) -> None:
    for walk in walks:
        assert walk.zone == "UTC" or ((walk.twice or walk.left_out) and len(walk.changes) == 1), str(walk)
        random = Random(str(walk))
        chosen = [*EXPRESSIONS, *(drawn(random, walk) for _ in range(5))]
        few = {cron: len(Expression(cron).instants(walk)) for cron in chosen}
        assert sum(0 < count <= MANY for count in few.values()) > 10
        for cron in [cron for cron, count in few.items() if count <= MANY]:
            assert differences(walk, cron, skipped(random, walk)) == []


def test_asked_from_any_instant_the_next_ones_are_found(walks: list[Walk]) -> None:
    for walk in walks:
        random = Random(str(walk))
        for cron in (*random.sample(EXPRESSIONS, 4), "30 0-4 * * *", "*/30 * * * *", drawn(random, walk)):
            assert out_of_step(walk, cron, random, 7) == []


def test_the_instants_are_strictly_in_order_from_wherever_they_are_asked(walks: list[Walk]) -> None:
    for walk in walks:
        random = Random(str(walk))
        for cron in random.sample(EXPRESSIONS, 3):
            since = random.randrange(walk.first * MICROSECONDS, walk.last * MICROSECONDS)
            found = [since, *islice(Timetable(cron=cron, zone=walk.zone).after(since), 15)]
            assert len(found) == 16
            assert all(one < other for one, other in pairwise(found))


@pytest.mark.parametrize(("cron", "count"), [("* * * * *", 180), ("*/7 * * * *", 27), ("* 0,2 * * *", None)])
def test_each_time_that_is_shown_comes_also_in_an_hour_that_comes_twice(cron: str, count: int | None) -> None:
    for change in (PUT_ON, PUT_BACK):
        walk = around("Europe/Berlin", change, 1.5)
        assert count in (None, len(Expression(cron).instants(walk)))
        assert differences(walk, cron) == []


@pytest.mark.parametrize("cron", SIX_FIELDS)
def test_six_fields_begin_with_seconds_and_come_as_brute_force_says(cron: str) -> None:
    for change in (PUT_ON, PUT_BACK):
        walk = around("Europe/Berlin", change, 1.25, step=1)
        assert walk.twice + walk.left_out == 3600
        assert differences(walk, cron) == []
        assert out_of_step(walk, cron, Random(cron), 7) == []


def test_six_fields_without_a_star_in_second_minute_and_hour_go_by_the_hours_of_the_day() -> None:
    for cron, since, expected in (
        ("0 30 2 * * *", "2026-03-28T12:00Z", ["29T01:00", "30T00:30"]),
        ("0 30 2 * * *", "2026-10-24T12:00Z", ["25T00:30", "26T01:30"]),
        ("9 0 2 * * *", "2026-10-24T12:00Z", ["25T00:00:09", "26T01:00:09"]),
    ):
        assert after(cron, "Europe/Zurich", since, 2) == expected


def test_several_seconds_that_are_left_out_come_once_at_the_end_of_the_gap() -> None:
    for cron in ("0,20,40 30 2 * * *", "0-59 0-59 2 * * *", "5-7 10,20 1-2 * * *"):
        found = list(Timetable(cron=cron, zone="Europe/Zurich").between(micros(PUT_ON) - 1, micros(PUT_ON) + HOUR))
        assert found == [micros(PUT_ON)]


@pytest.mark.parametrize("cron", ["0 0 * * *", "*/20 * * * *", "10 0 * * *", "45 0 * * *", "30 23 * * *"])
def test_a_change_by_44_minutes_and_30_seconds_is_followed_to_the_second(cron: str) -> None:
    change = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)
    walk = around("Africa/Monrovia", change, 2, step=1)
    assert walk.left_out == 44 * 60 + 30
    assert Expression(cron).instants(walk)
    assert differences(walk, cron) == []


def test_what_is_asked_at_an_instant_of_its_own_is_not_given_again() -> None:
    for since, expected in (
        ("2026-10-25T00:29:59.999999Z", "25T00:30"),
        ("2026-10-25T00:30:00Z", "26T01:30"),
        ("2026-10-25T00:30:00.000001Z", "26T01:30"),
        ("2026-10-25T01:29:59Z", "26T01:30"),
        ("2026-03-29T00:59:59.999999Z", "29T01:00"),
        ("2026-03-29T01:00:00Z", "30T00:30"),
    ):
        assert after("30 2 * * *", "Europe/Berlin", since, 1) == [expected]


@pytest.mark.timeout(20)
def test_what_comes_once_in_decades_is_found_and_the_search_ends_with_the_calendar() -> None:
    sundays = Timetable(cron="0 0 29 2 */7", zone="Pacific/Auckland")
    found = [in_zone(one, "Pacific/Auckland") for one in islice(sundays.after(0), 6)]
    assert [time.year for time in found] == [1976, 2004, 2032, 2060, 2088, 2128]
    assert {(time.month, time.day, time.isoweekday()) for time in found} == {(2, 29, 7)}
    last = list(Timetable(cron="0 0 29 2 *", zone="Europe/Berlin").after(micros("8990-01-01T00:00Z")))
    assert [in_zone(one, "Europe/Berlin").year for one in last][:2] == [8992, 8996]
    assert list(Timetable(cron="* * * * * *").after(micros("9999-12-31T00:00Z"))) == []


@pytest.mark.parametrize(
    ("cron", "same"),
    [
        ("0 9 * FEB-mar mon-Wed", "0 9 * 2-3 1-3"),
        ("0 9 * * Sun", "0 9 * * 0,7"),
        ("0 9 L 4 *", "0 9 30 4 *"),
        ("0 9 * * sun#2", "0 9 8-14 * */7"),
        ("0 9 * 3 7L", "0 9 25-31 3 */7"),
    ],
)
def test_names_and_last_days_mean_what_they_say(cron: str, same: str) -> None:
    first, last = micros("2026-01-01T00:00Z"), micros("2033-01-01T00:00Z")
    assert list(Timetable(cron=cron).between(first, last)) == list(Timetable(cron=same).between(first, last))


def test_an_expression_follows_the_clock_if_its_second_minute_or_hour_begins_with_a_star() -> None:
    for cron in (
        "*/10 * * * *", "0 * * * *", "* 2 * * *", "30 */2 * * *", "*/9 30 2 * * *", "0 * 2 * * *", "0 30 */2 * * *",
    ):  # fmt: skip
        assert follows_the_clock(cron) and Expression(cron).flowing
    for cron in ("30 2 * * *", "0-59 0-23 * * *", "30 2 */2 * *", "30 2 * */2 */2", "0 30 2 * * *", "0 30 2 */2 * *"):
        assert not (follows_the_clock(cron) or Expression(cron).flowing)


# -- the oracle ------------------------------------------------------------------------------------------------------


def test_the_long_form_tells_in_one_line_how_much_agreed(capsys: pytest.CaptureFixture[str]) -> None:
    assert oracle.main(["CHECKS=20000", "ZONE=Lord_Howe", "SEED=3"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    checks, _, told = line.partition(" checks")
    assert int(checks.replace(",", "")) >= 20_000
    assert ": 0 differed" in told


@pytest.mark.parametrize("late", [-60, 1, 3600])
def test_the_long_form_fails_if_the_timetable_is_wrong(
    late: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong(Timetable, frozen=True):
        def after(self, instant: int) -> Any:
            right = Timetable(cron=self.cron, zone=self.zone, skip_days=self.skip_days)
            return (found + late * MICROSECONDS for found in right.after(instant))

    monkeypatch.setattr(oracle, "Timetable", Wrong)
    monkeypatch.setattr(oracle, "TOLD", 1_000_000)
    assert oracle.main(["CHECKS=6000", "ZONE=Berlin"]) == 1
    told = capsys.readouterr().out
    assert all(kind in told for kind in (" is left out\n", " is too much\n", ": after "))


def test_a_zone_that_is_not_there_is_no_proof() -> None:
    with pytest.raises(SystemExit, match="another ZONE"):
        oracle.main(["ZONE=Nowhere"])


# -- every, at, nicknames, next --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "offset", "since", "expected"),
    [
        (10, 0, 0, [10, 20, 30]),
        (10, 0, 9.999999, [10, 20, 30]),
        (10, 0, 10, [20, 30, 40]),
        (10, 3, 0, [3, 13, 23]),
        (10, 25, 0, [5, 15, 25]),
        (50 * 365 * 86_400, 0, 0, [one * 50 * 365 * 86_400 for one in range(1, 141)]),
        (1.5, 0.25, 1, [1.75, 3.25, 4.75]),
        (timedelta(days=1), timedelta(hours=3), 1_774_742_400, [1_774_753_200, 1_774_839_600, 1_774_926_000]),
    ],
)
def test_intervals_are_multiples_counted_from_1970(
    every: Any, offset: Any, since: float, expected: list[float]
) -> None:
    schedule = Schedule(every=every, offset=offset)
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=since)
    assert [time.timestamp() for time in schedule.next(1000, after=start)][: len(expected)] == expected


def test_a_single_time_comes_once_and_is_the_same_in_every_zone() -> None:
    at = datetime(2026, 3, 29, 3, 30, 0, 5, tzinfo=ZoneInfo("Europe/Berlin"))
    schedule = Schedule(at=at)
    assert schedule.plan == Schedule(at=at.astimezone(UTC)).plan
    assert schedule.next(3, after=at - timedelta(microseconds=1)) == [at]
    assert schedule.next(3, after=at) == []
    assert Timetable(every=10).beginning(5) == schedule.plan.timetable.beginning(5) == 5
    assert schedule.plan.timetable.beginning(micros(at) + 5) == micros(at) - 1


def test_between_two_instants_the_last_one_is_counted_and_the_first_is_not() -> None:
    minute = 60 * MICROSECONDS
    for timetable in (Timetable(every=minute), Timetable(cron="* * * * *")):
        assert list(timetable.between(minute, 3 * minute)) == [2 * minute, 3 * minute]
        assert list(timetable.between(minute, 2 * minute - 1)) == []
    assert list(Timetable(at=30).between(29, 30)) == [30]
    assert list(Timetable(at=30).between(30, 40)) == []


@pytest.mark.parametrize(
    ("nickname", "cron"),
    [
        ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@monthly", "0 0 1 * *"), ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@hourly", "0 * * * *"), (" @Daily\n", "0 0 * * *"),
        ("0  3\t* * *", "0 3 * * *"),
    ],
)  # fmt: skip
def test_nicknames_and_spaces_are_written_out_in_the_plan(nickname: str, cron: str) -> None:
    schedule = Schedule(nickname, zone="Europe/Berlin")
    assert schedule.plan.timetable == Timetable(cron=cron, zone="Europe/Berlin")


def test_the_next_times_are_given_in_utc_from_now_on_unless_another_time_is_given() -> None:
    before = datetime.now(UTC)
    (soon,) = Schedule(every=60).next()
    assert before < soon <= datetime.now(UTC) + timedelta(minutes=1)
    berlin = datetime(2026, 7, 1, 3, 30, tzinfo=timezone(timedelta(hours=2)))
    found = Schedule("0 3 * * *", zone="Europe/Berlin", jitter=600).next(1000, after=berlin)
    assert found[0] == datetime(2026, 7, 2, 1, tzinfo=UTC)
    assert {time.tzinfo for time in found} == {UTC}
    assert len(found) == 1000


def test_a_plan_holds_microseconds_and_by_default_one_process_at_a_time_and_a_day_to_catch_up() -> None:
    timetable = Timetable(every=60 * MICROSECONDS)
    assert Schedule(every=60).plan == Plan(timetable, overlap="skip", limit=1, catch_up=DAY, jitter=0, stop_after=None)
    full = Schedule(every=60, overlap="queue", limit=3, catch_up=0, jitter=timedelta(seconds=1.5), stop_after=2)
    assert full.plan == Plan(timetable, overlap="queue", limit=3, catch_up=0, jitter=1_500_000, stop_after=2)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule("0 3 * * *"), "0 3 * * * UTC"),
        (Schedule("0 3 * * *", skip_days=[date(2026, 12, 25)]), "0 3 * * * UTC, but for 1 day"),
        (Schedule("0 3 * * *", skip_days={date(2026, 12, n) for n in (25, 26)}), "0 3 * * * UTC, but for 2 days"),
        (Schedule(every=90, offset=0.5), "every 90 s, 0.5 s later"),
        (Schedule(every=timedelta(hours=36), offset=600), "every 36 h, 10 min later"),
        (Schedule(at=datetime(2026, 11, 25, 3, tzinfo=UTC)), "at 2026-11-25T03:00:00Z"),
    ],
)
def test_a_schedule_says_when_it_comes_round(schedule: Schedule, words: str) -> None:
    assert repr(schedule) == f"<Schedule {words}>"


@pytest.mark.parametrize(
    ("cron", "zone", "skip_days", "expected"),
    [
        ("0 9 * * *", "Europe/Berlin", ["2026-12-25", "2026-12-26"], ["2026-12-24T08:00Z", "2026-12-27T08:00Z"]),
        ("30 23 * * *", "America/New_York", ["2026-12-24"], ["2026-12-24T04:30Z", "2026-12-26T04:30Z"]),
        ("* * * * * *", "Africa/Cairo", ["2026-04-24"], ["2026-12-24T00:00:01Z", "2026-12-24T00:00:02Z"]),
        ("0 0 29 2 *", "UTC", ["2028-02-29"], ["2032-02-29T00:00Z", "2036-02-29T00:00Z"]),
    ],
)
def test_on_a_day_that_is_skipped_nothing_comes(
    cron: str, zone: str, skip_days: list[str], expected: list[str]
) -> None:
    schedule = Schedule(cron, zone=zone, skip_days=[date.fromisoformat(day) for day in skip_days])
    found = schedule.next(2, after=datetime(2026, 12, 24, tzinfo=UTC))
    assert found == [datetime.fromisoformat(one) for one in expected]


def test_a_skipped_day_of_each_second_is_passed_over_at_once_also_where_its_next_has_no_midnight() -> None:
    cairo = Timetable(cron="* * * * * *", zone="Africa/Cairo", skip_days=(date(2026, 4, 23), date(2026, 4, 24)))
    before = int(datetime(2026, 4, 22, 21, 59, 59, tzinfo=UTC).timestamp()) * MICROSECONDS
    assert next(cairo.after(before)) == int(datetime(2026, 4, 24, 21, tzinfo=UTC).timestamp()) * MICROSECONDS


# -- jitter and zones ------------------------------------------------------------------------------------------------


def test_jitter_is_the_same_wherever_it_is_asked_and_below_its_bound() -> None:
    jitter = 300 * MICROSECONDS
    nightly = [spread("nightly", day * DAY, jitter) for day in range(400)]
    assert nightly == [spread("nightly", day * DAY, jitter) for day in range(400)]
    assert nightly[:2] == [88_291_232, 198_292_356], "an occurrence begins at another time than with the last release"
    assert 0 <= min(nightly) < jitter // 10 < jitter * 9 // 10 < max(nightly) < jitter
    assert len(set(nightly)) > 390
    assert sum(one != spread("weekly", day * DAY, jitter) for day, one in enumerate(nightly)) > 390
    assert {spread("nightly", day, bound) for bound in (0, 1) for day in range(100)} == {0}


def test_a_zone_is_read_once_and_an_unknown_one_is_told() -> None:
    assert zone_of("Europe/Berlin") is zone_of("Europe/Berlin")
    with pytest.raises(ZoneInfoNotFoundError):
        zone_of("Europe/Atlantis")
    with pytest.raises(ValueError, match="ZoneInfo keys"):
        zone_of("../Europe/Berlin")
