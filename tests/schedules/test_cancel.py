"""Where the next occurrence has the one before cancelled: no more run on than may, and each is asked once."""

from __future__ import annotations

from asyncio import CancelledError
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import json

from perdure import Engine, Schedule, Search, Status, limits, receive, testing, workflow
from perdure.authoring.schedule import occurrences
from perdure.authoring.schedule.occurrences import Occurrence, RoundReport
from perdure.kernel import payload
from tests.runtime.conftest import Open, until
from tests.schedules.reports import done, long_report, noted

HOUR = 3600
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
CANCELS = Schedule(every=HOUR, overlap="cancel")


@workflow(name="tidy report")
async def tidy_report(scheduled_at: datetime | None = None) -> None:
    """It cleans up for as long as nobody says that all is clean, and notes how often it was asked to cancel."""
    assert scheduled_at is not None
    at = f"{scheduled_at:%H:%M}"
    await noted("begun", at)
    while True:
        try:
            await receive("clean", str)
        except CancelledError:
            await noted("asked", at)
        else:
            break


async def started(engine: Engine) -> list[tuple[str, Status]]:
    """The hour for which each process was started, the oldest first, and the status of the process."""
    views = await engine.list(Search(key_prefix="hourly/"))
    return sorted(((view.key or "")[-9:-4], view.status) for view in views)


@pytest.mark.parametrize("portion", [100, 3])
async def test_of_those_that_came_while_no_worker_ran_only_the_last_is_started(
    portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_STARTED_RECORDS", portion)
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", CANCELS, long_report, "x")
        await engine.sleep(HOUR + 1)
        process = await handle.process()
        await process.hold()
        await engine.sleep(10 * HOUR)
        await process.resume()
        await engine.sleep(60)
        assert await started(engine) == [("01:00", Status.CANCELLED), ("11:00", Status.RUNNING)]
        view = await handle.status()
        assert (view.started, view.skipped, view.missed, view.waiting, view.running) == (2, 9, 0, 0, 2)
        await engine.sleep(HOUR)
        assert (await started(engine))[1:] == [("11:00", Status.CANCELLED), ("12:00", Status.RUNNING)]


async def test_up_to_the_limit_the_last_ones_run_on_side_by_side() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", Schedule(every=HOUR, overlap="cancel", limit=3), long_report, "x")
        await engine.sleep(2 * HOUR + 1)
        process = await handle.process()
        await process.hold()
        await engine.sleep(2 * HOUR)
        await process.resume()
        await engine.sleep(60)
        assert [at for at, status in await started(engine) if status is Status.RUNNING] == ["02:00", "03:00", "04:00"]
        assert (await handle.status()).skipped == 0


async def test_each_is_asked_to_cancel_once_however_long_its_clean_up_takes() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", CANCELS, tidy_report)
        await engine.sleep(4 * HOUR + 1)
        asked = [("asked", f"0{hour}:00") for hour in (1, 2, 3)]
        assert sorted(done) == asked + [("begun", f"0{hour}:00") for hour in (1, 2, 3, 4)]
        assert (await handle.status()).running == 4
        await engine.process((await handle.status()).recent[0].process).signal("clean", "yes")
        await engine.sleep(HOUR)
        assert sorted(done[-2:]) == [("asked", "04:00"), ("begun", "05:00")]
        assert (await handle.status()).running == 4


async def test_those_that_were_started_by_hand_make_room_once_the_next_one_comes() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", CANCELS, long_report, "x")
        for _ in range(3):
            await handle.trigger()
        await engine.sleep(HOUR // 2)
        assert [status for _, status in await started(engine)] == [Status.RUNNING] * 3, "whatever else runs"
        await engine.sleep(HOUR // 2 + 1)
        assert [at for at, status in await started(engine) if status is Status.RUNNING] == ["01:00"]


async def test_of_those_that_do_not_end_only_the_last_are_followed_and_each_was_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_STARTED_RECORDS", 3)
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", CANCELS, tidy_report)
        await engine.sleep(9 * HOUR + 1)
        assert (await handle.status()).running == 3 + 1, "the last that were asked, and the one that runs"
        asked = [at for what, at in done if what == "asked"]
        assert asked == [f"0{hour}:00" for hour in range(1, 9)]


async def test_of_any_number_that_were_started_by_hand_the_last_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_RUNNING_RECORDS", 4)
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", Schedule(every=HOUR, limit=2), long_report, "x")
        for days in (1, 2):
            back = MONDAY - timedelta(days=days)
            assert await handle.backfill(back, back + timedelta(hours=2)) == 3
        await engine.sleep(HOUR + 1)
        view = await handle.status()
        assert (view.running, view.started, view.skipped) == (4, 6, 1)


async def test_a_round_that_runs_twice_asks_the_same_ones(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, reports = occurrences._Going.go, list[RoundReport]()

    async def fails_at_first(self: occurrences._Going) -> RoundReport:
        reports.append(await whole(self))
        if occurrences.attempt().number == 1:
            raise ConnectionError("the answer of the database is lost")
        return reports[-1]

    engine, _ = await opened(work=True, workflows=[long_report])
    handle = await engine.schedules.put("hourly", Schedule("@yearly", overlap="cancel"), long_report, "x")
    first = await handle.trigger()
    monkeypatch.setattr(occurrences._Going, "go", fails_at_first)
    now = datetime.fromtimestamp(await engine.store.now() / 1_000_000, UTC)
    await engine.schedules.put("hourly", Schedule(at=now, overlap="cancel"), long_report, "x")
    await until(lambda: len(reports) == 2)
    before, after = reports
    assert before == after and len(before.started) == 1
    assert [(one.process == first.id, one.cancelled) for one in after.standing.running] == [
        (True, True),
        (False, False),
    ]


def test_what_older_releases_have_stored_is_read_and_this_one_stores_what_it_always_has() -> None:
    assert json.decode(b'{"process":"7","at":5}', type=Occurrence) == Occurrence("7", 5)
    stored = b'{"process":"7","at":5,"cancelled":false}'
    assert payload.encode(Occurrence("7", 5)) == stored, "the arguments of a round that a worker began are others"
