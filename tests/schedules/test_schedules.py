"""What a schedule starts and when: late, full, failing or paused, and by whom it is changed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Engine, Handle, Schedule, Status, limits, testing
from perdure.authoring.schedule import machine
from perdure.authoring.schedule.machine import KIND
from perdure.client.schedules import ScheduleView
from perdure.errors import DefinitionError, IllegalMove, InvalidInput, InvalidKey, ScheduleNotFound, UnknownKind
from perdure.kernel.process import Process
from perdure.store.base import Search
from tests.schedules.reports import done, failing_report, long_report, report, slow_report

DAY, HOUR, MINUTE = 86_400, 3_600, 60
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
HOURLY = Schedule(every=HOUR)
WARY = Schedule(every=HOUR, overlap="allow", stop_after=2)


async def told(engine: Engine, name: str, verdict: str = "end") -> None:
    """Tell the oldest process of a long report that runs to end."""
    running = await engine.list(Search(kind="long report", statuses=(Status.RUNNING,)))
    oldest: Handle[str] = engine.process(running[-1].id, str)
    await oldest.signal("end", verdict)
    await oldest.result()
    assert name in running[-1].key


async def seen(engine: Engine, name: str = "hourly") -> ScheduleView:
    return await engine.schedules.handle(name).status()


async def test_each_day_by_the_clocks_of_its_zone_also_when_these_are_put_on() -> None:
    async with testing.engine(begins=datetime(2026, 3, 27, 12, tzinfo=UTC)) as engine:
        await engine.schedules.put("nightly", Schedule("30 2 * * *", zone="Europe/Berlin"), report, "daily")
        await engine.sleep(4 * DAY)
        assert done == [
            ("daily", "2026-03-28T01:30:00+00:00"),
            ("daily", "2026-03-29T01:00:00+00:00"),
            ("daily", "2026-03-30T00:30:00+00:00"),
            ("daily", "2026-03-31T00:30:00+00:00"),
        ]


async def test_an_occurrence_is_a_process_that_can_be_found_and_one_may_give_the_time_oneself() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        options = report.options(attributes={"branch": "Bern"}, deadline=60)
        await engine.schedules.put("hourly", HOURLY, options, "x", datetime(2000, 1, 1, tzinfo=UTC))
        await engine.sleep(HOUR + 1)
        [view] = await engine.list(Search(kind="report"))
        assert view.key == "hourly/2026-03-02T01:00:00Z" and view.status is Status.COMPLETED
        assert view.attributes == {"branch": "Bern", "schedule": "hourly", "scheduled_at": "2026-03-02T01:00:00Z"}
        assert view.deadline is not None and view.created_at is not None
        assert abs(view.deadline - view.created_at - timedelta(seconds=60)) < timedelta(seconds=1)
        assert done == [("x", "2000-01-01T00:00:00+00:00")]


async def test_a_time_that_has_just_passed_is_caught_up_once_and_an_old_one_is_missed() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        for name, at in (("late", MONDAY - timedelta(hours=1)), ("old", MONDAY - timedelta(days=2))):
            await engine.schedules.put(name, Schedule(at=at), report, name)
            await engine.schedules.put(name, Schedule(at=at), report, name)
        await engine.sleep(DAY)
        assert done == [("late", "2026-03-01T23:00:00+00:00")]
        late, old = await seen(engine, "late"), await seen(engine, "old")
        assert [late.started, late.missed, late.next] == [1, 0, None] and [old.started, old.missed] == [0, 1]


async def test_more_than_one_round_takes_are_caught_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_STARTED_RECORDS", 3)
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", Schedule(every=HOUR, overlap="allow"), report, "x")
        await engine.sleep(1)
        process = await handle.process()
        await process.hold()
        await engine.sleep(10 * HOUR)
        assert done == []
        await process.resume()
        await engine.sleep(60)
        caught = [at[11:16] for _, at in done]
        assert sorted(caught) == [f"{hour:02}:00" for hour in range(1, 11)], "those of one round begin in any order"


# -- while others run ------------------------------------------------------------------------------------------------


async def test_while_one_runs_the_next_are_left_out() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("hourly", HOURLY, long_report, "x")
        await engine.sleep(3 * HOUR + 1)
        assert len(done) == 1
        await told(engine, "hourly/2026-03-02T01:00:00Z")
        await engine.sleep(HOUR)
        assert [at[11:16] for _, at in done] == ["01:00", "04:00"]
        assert [(await seen(engine)).started, (await seen(engine)).skipped, (await seen(engine)).running] == [2, 2, 1]


async def test_up_to_their_limit_several_run_side_by_side() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("hourly", Schedule(every=HOUR, limit=2), long_report, "x")
        await engine.sleep(5 * HOUR + 1)
        assert [at[11:16] for _, at in done] == ["01:00", "02:00"]


async def test_which_of_many_have_ended_is_asked_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_ROWS", 2)
    async with testing.engine(begins=MONDAY) as engine:
        whole, asked = engine.store.search, list[int]()

        async def search(wanted: Search) -> list[Process]:
            asked.append(len(wanted.ids or ()))
            return await whole(wanted)

        monkeypatch.setattr(engine.store, "search", search)
        await engine.schedules.put("hourly", Schedule(every=HOUR, limit=5), long_report, "x")
        await engine.sleep(8 * HOUR + 1)
        assert ((await seen(engine)).running, (await seen(engine)).skipped) == (5, 3)
        assert max(asked) == 2, "a database reads only so many ids at once"
        await told(engine, "hourly/2026-03-02T01:00:00Z")
        await engine.sleep(HOUR)
        assert ((await seen(engine)).running, (await seen(engine)).started) == (5, 6)


async def test_those_that_are_queued_begin_one_after_another_as_soon_as_the_one_before_has_ended() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        # While one waits, the schedule looks every 5 s whether the one before has ended: hours of that take long.
        await engine.schedules.put("hourly", Schedule(every=MINUTE, overlap="queue"), long_report, "x")
        await engine.sleep(3 * MINUTE + 1)
        assert len(done) == 1 and (await seen(engine)).waiting == 2
        await told(engine, "hourly/2026-03-02T00:01:00Z")
        await engine.sleep(10)
        assert [at[11:16] for _, at in done] == ["00:01", "00:02"] and (await seen(engine)).waiting == 1


async def test_the_oldest_is_asked_to_cancel_for_the_next_one() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("hourly", Schedule(every=HOUR, overlap="cancel"), long_report, "x")
        await engine.sleep(3 * HOUR + 1)
        views = await engine.list(Search(kind="long report"))
        assert [view.status for view in views] == [Status.RUNNING, Status.CANCELLED, Status.CANCELLED]
        assert (await seen(engine)).started == 3


async def test_where_overlap_is_allowed_all_run() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("hourly", Schedule(every=HOUR, overlap="allow"), long_report, "x")
        await engine.sleep(5 * HOUR + 1)
        assert len(await engine.list(Search(kind="long report", statuses=(Status.RUNNING,)))) == 5


async def test_after_so_many_failures_in_a_row_it_pauses_and_says_why() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("hourly", Schedule(every=HOUR, stop_after=3), failing_report, 3)
        await engine.sleep(DAY)
        assert len(done) == 6 and (await seen(engine)).paused == "the last 3 processes have failed"
        await engine.schedules.handle("hourly").resume()
        await engine.sleep(DAY)
        assert len(done) == 12


async def test_what_has_failed_before_it_is_resumed_does_not_pause_it_again() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        # Each ends after two hours and a half; those before 05:00 fail.
        handle = await engine.schedules.put("hourly", WARY, slow_report, 5)
        await engine.sleep(8 * HOUR + 1)
        view = await handle.status()
        assert (view.paused, view.started, view.running) == ("the last 2 processes have failed", 4, 2)
        await handle.resume()
        await engine.sleep(1)
        view = await handle.status()
        assert (view.paused, view.running, view.next) == ("", 0, MONDAY + timedelta(hours=9))
        await engine.sleep(DAY)
        assert (await handle.status()).paused == "" and (await handle.status()).started == 28


async def test_what_fails_after_it_was_resumed_pauses_it_again() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", WARY, slow_report, 5)
        await engine.sleep(5 * HOUR + MINUTE)
        assert (await handle.status()).paused
        await handle.resume()  # those of 03:00 and 04:00 fail at 05:30 and 06:30
        await engine.sleep(HOUR)
        assert (await handle.status()).paused == ""
        await engine.sleep(HOUR)
        assert (await handle.status()).paused == "the last 2 processes have failed"


async def test_jitter_puts_an_occurrence_off_and_not_its_instant() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        for n in range(5):
            await engine.schedules.put(f"n{n}", Schedule("0 12 * * *", jitter=HOUR), report, f"n{n}")
        await engine.sleep(12 * HOUR)
        early = len(done)
        await engine.sleep(HOUR)
        assert early < 5 == len(done) and {at for _, at in done} == {"2026-03-02T12:00:00+00:00"}
        begun = [view.created_at for view in await engine.list(Search(kind="report"))]
        assert len(set(begun)) == 5


async def test_what_jitter_puts_off_for_longer_than_catch_up_is_not_missed() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        much = Schedule(every=HOUR, overlap="allow", jitter=HOUR - MINUTE, catch_up=MINUTE)
        await engine.schedules.put("hourly", much, report, "x")
        await engine.sleep(7 * HOUR - 1)
        assert [at[11:16] for _, at in done] == [f"0{hour}:00" for hour in range(1, 7)]
        assert (await seen(engine)).missed == 0


async def test_without_catching_up_each_is_started_and_only_what_is_more_than_ten_seconds_late_is_missed() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", Schedule(every=HOUR, catch_up=0), report, "x")
        await engine.sleep(2 * HOUR + 1)
        assert [at[11:16] for _, at in done] == ["01:00", "02:00"]
        process = await handle.process()
        for away, counted in ((HOUR + 8, (3, 0)), (HOUR + 1, (3, 1))):  # until 03:00:09, and until 04:00:11
            await process.hold()
            await engine.sleep(away)
            await process.resume()
            await engine.sleep(1)
            assert ((await seen(engine)).started, (await seen(engine)).missed) == counted


# -- by hand ---------------------------------------------------------------------------------------------------------


async def test_while_it_pauses_nothing_is_started_and_what_came_meanwhile_is_not_made_up_for() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(HOUR + 1)
        await handle.pause(who="ann", why="an audit")
        await engine.sleep(3 * HOUR)
        assert len(done) == 1 and (await handle.status()).paused == "an audit" and (await handle.status()).next is None
        await handle.resume()
        await engine.sleep(HOUR)
        assert [at[11:16] for _, at in done] == ["01:00", "05:00"]


async def test_a_trigger_starts_one_now_also_while_another_runs_or_it_pauses() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, long_report, "x")
        await handle.pause()
        first, second = [await handle.trigger() for _ in range(2)]
        await engine.sleep(HOUR)
        assert first.id != second.id and len(done) == 2
        await handle.resume()
        await engine.sleep(HOUR)
        assert len(done) == 2 and (await handle.status()).skipped == 1


async def test_a_trigger_at_the_very_instant_of_what_has_come_starts_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(HOUR + 1)
        instant = int((MONDAY + timedelta(hours=1)).timestamp()) * 1_000_000
        monkeypatch.setattr(machine, "_now", lambda: instant)
        first, second = [await handle.trigger() for _ in range(2)]
        monkeypatch.undo()
        await engine.sleep(1)
        assert first.id != second.id and len(done) == 3
        assert (await seen(engine)).started == 3
        keys = {view.key for view in await engine.list(Search(kind="report"))}
        assert keys == {f"hourly/2026-03-02T01:00:00{part}Z" for part in ("", ".000001", ".000002")}


async def test_a_backfill_starts_what_there_is_to_start_once() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("nightly", Schedule("0 3 * * *"), report, "x")
        for began in (3, 0):
            assert await handle.backfill(MONDAY - timedelta(days=3), MONDAY) == began
        assert await handle.backfill(MONDAY - timedelta(days=5), MONDAY) == 2
        assert [(await handle.status()).started, len((await handle.status()).recent)] == [5, 5]
        await engine.sleep(1)
        assert sorted(at[8:10] for _, at in done) == ["01", "25", "26", "27", "28"]
        with pytest.raises(InvalidInput, match=r"more than 1,000 instants from .* Give a shorter time"):
            await handle.backfill(MONDAY - timedelta(days=2000), MONDAY)
        with pytest.raises(InvalidInput, match="Give the earlier time first"):
            await handle.backfill(MONDAY, MONDAY - timedelta(days=1))
        with pytest.raises(InvalidInput, match="not a time with a zone"):
            await handle.backfill(MONDAY.replace(tzinfo=None), MONDAY)


async def test_who_puts_it_again_changes_it_and_what_had_come_by_then_stays_done() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(2 * HOUR + 1)
        await engine.schedules.put("hourly", HOURLY, report, "y")
        await engine.sleep(HOUR)
        await engine.schedules.put("hourly", Schedule(every=2 * HOUR), report, "z")
        await engine.sleep(4 * HOUR)
        assert [(who, at[11:16]) for who, at in done] == [
            ("x", "01:00"), ("x", "02:00"), ("y", "03:00"), ("z", "04:00"), ("z", "06:00"),
        ]  # fmt: skip


async def test_a_backfill_of_what_was_started_with_other_arguments_starts_nothing_twice() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(2 * HOUR + 1)
        await engine.schedules.put("hourly", HOURLY, report, "y")
        await handle.backfill(MONDAY, MONDAY + timedelta(hours=2))
        await engine.sleep(1)
        assert [(who, at[11:16]) for who, at in done] == [("x", "01:00"), ("x", "02:00"), ("y", "00:00")]


async def test_one_that_was_removed_is_gone_until_it_is_put_again() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(HOUR + 1)
        await handle.remove(who="ann")
        await engine.sleep(DAY)
        assert len(done) == 1 and await engine.schedules.list() == []
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'hourly'"):
            await handle.status()
        for verb in (handle.pause, handle.resume, handle.remove, handle.trigger):
            with pytest.raises(ScheduleNotFound):
                await verb()
        await engine.schedules.put("hourly", HOURLY, report, "again")
        await engine.sleep(HOUR)
        assert [who for who, _ in done] == ["x", "again"]


async def test_all_are_listed_by_name_with_what_they_start() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        await engine.schedules.put("b", Schedule("@daily", zone="Asia/Tokyo"), report, "x")
        await engine.schedules.put("a", HOURLY, long_report, "x")
        await engine.sleep(1)
        first, second = await engine.schedules.list()
        assert (first.name, first.workflow, first.times) == ("a", "long report", "every 1 h")
        assert (second.times, second.next) == ("0 0 * * * Asia/Tokyo", MONDAY + timedelta(hours=15))
        assert {view.kind for view in await engine.list()} == {KIND}


async def test_what_cannot_be_started_is_refused_when_it_is_put() -> None:
    async with testing.engine() as engine:
        for wrong, args in ((report, (17,)), (report, ()), (report, ("x", None, "y"))):
            with pytest.raises(InvalidInput):
                await engine.schedules.put("n", HOURLY, wrong, *args)  # type: ignore[arg-type, call-arg]
        with pytest.raises(InvalidInput, match="a schedule has no key=: each of its processes has a key of its own"):
            await engine.schedules.put("n", HOURLY, report.options(key="k"), "x")
        with pytest.raises(InvalidInput, match="is not a schedule"):
            await engine.schedules.put("n", "0 3 * * *", report, "x")  # type: ignore[arg-type]
        with pytest.raises(UnknownKind):
            await engine.schedules.put("n", HOURLY, "nobody has it")  # type: ignore[arg-type]
        for name in ("", "n" * 500, "n\n"):
            with pytest.raises(InvalidKey):
                await engine.schedules.put(name, HOURLY, report, "x")
        for verb in ("status", "pause", "resume", "remove", "trigger"):
            with pytest.raises(ScheduleNotFound):
                await getattr(engine.schedules.handle("nobody"), verb)()
        assert await engine.list() == []


async def test_one_whose_process_was_ended_by_a_person_says_so_and_does_not_hide_the_others() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("a", HOURLY, report, "x")
        await engine.schedules.put("b", HOURLY, report, "x")
        await (await handle.process()).terminate()
        for change in (handle.pause(), engine.schedules.put("a", HOURLY, report, "y")):
            with pytest.raises(IllegalMove, match="was ended by a person, and hears nothing any more"):
                await change
        ended, other = await engine.schedules.list()
        assert (ended.status, ended.next, other.status) == ("cancelled", None, "running")


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"cron": "24 2-2/9 * * *"}, "the range 2-2/9 has one value, and no step; write 2"),
        ({"cron": "0 3 * * *", "offset": 60}, "offset= is for every="),
        ({"every": 60, "zone": "Mars/Phobos"}, "zone= is for cron"),
    ],
)
def test_what_would_be_passed_over_in_silence_is_refused(given: dict[str, Any], advice: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(advice)):
        Schedule(**given)
