"""What comes late is started as another workflow, and still once: by itself and where it is filled in by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Engine, Schedule, Search, testing, workflow
from perdure.errors import DefinitionError, InvalidInput
from tests.runtime.conftest import LIMIT, Open
from tests.schedules.reports import done, report

HOUR = 3600
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


@workflow(name="short report")
async def short_report(kind: str, scheduled_at: datetime | None = None) -> None:
    assert scheduled_at is not None
    done.append((f"short {kind}", scheduled_at.isoformat()))


@workflow(name="other report")
async def other_report(number: int) -> None:
    pass


HOURLY = Schedule(every=HOUR, overlap="allow", late_after=timedelta(minutes=10), late=short_report)


async def kinds(engine: Engine) -> dict[str, list[str]]:
    """The kinds of the processes of each instant."""
    found: dict[str, list[str]] = {}
    for one in await engine.list(Search(key_prefix="hourly/")):
        found.setdefault((one.key or "")[-9:-4], []).append(one.kind)
    return found


async def test_what_comes_late_is_started_as_the_other_workflow_and_what_comes_in_time_is_not() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(HOUR + 1)
        process = await handle.process()
        await process.hold()
        await engine.sleep(2 * HOUR + 5 * 60)
        await process.resume()
        await engine.sleep(HOUR)
        assert done == [
            ("x", "2026-03-02T01:00:00+00:00"),
            ("short x", "2026-03-02T02:00:00+00:00"),
            ("x", "2026-03-02T03:00:00+00:00"),
            ("x", "2026-03-02T04:00:00+00:00"),
        ]
        view = await handle.status()
        assert (view.started, view.late_after, view.late) == (4, 600.0, "short report")


async def test_what_waits_for_the_jitter_of_an_earlier_one_is_not_late() -> None:
    minutely = Schedule(
        every=60, jitter=timedelta(hours=1), overlap="allow", late_after=timedelta(minutes=1), late=short_report
    )
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", minutely, report, "x")
        await engine.sleep(2 * HOUR)
        assert len(done) > 60 and {name for name, _ in done} == {"x"}
        process = await handle.process()
        await process.hold()
        await engine.sleep(HOUR)
        await process.resume()
        await engine.sleep(1)
        assert {name for name, _ in done} == {"x", "short x"}, "what began later than all jitter and that is late"


async def test_what_was_started_late_is_not_filled_in_again_and_what_is_filled_in_is_never_late() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        handle = await engine.schedules.put("hourly", HOURLY, report, "x")
        await engine.sleep(1)
        process = await handle.process()
        await process.hold()
        await engine.sleep(HOUR + 20 * 60)
        await process.resume()
        await engine.sleep(1)
        assert await kinds(engine) == {"01:00": ["short report"]}
        assert await handle.backfill(MONDAY - timedelta(hours=1), MONDAY + timedelta(hours=1)) == 2
        await engine.sleep(1)
        assert await kinds(engine) == {"23:00": ["report"], "00:00": ["report"], "01:00": ["short report"]}


async def test_a_late_occurrence_on_each_store(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[report, short_report])
    now = datetime.fromtimestamp(await engine.store.now() / 1_000_000, UTC)
    for name, at in (("in time", now - timedelta(minutes=1)), ("late", now - timedelta(hours=1))):
        once = Schedule(at=at.replace(microsecond=0), late_after=1800, late=short_report)
        await engine.schedules.put(name, once, report, name)
    for name, kind in (("in time", "report"), ("late", "short report")):
        while not (found := await engine.list(Search(key_prefix=f"{name}/"))):
            pass
        assert [one.kind for one in found] == [kind]
        await engine.process(found[0].id).result(LIMIT)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"late_after": 60}, "belong together"),
        ({"late": short_report}, "belong together"),
        ({"late_after": -1, "late": short_report}, "late_after"),
        ({"late_after": HOUR, "late": short_report, "catch_up": HOUR}, "catch_up"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_declared(given: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        Schedule(every=HOUR, **given)


async def test_a_workflow_that_does_not_fit_is_refused_when_the_schedule_is_put() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        unfit = Schedule(every=HOUR, late_after=60, late=other_report)
        with pytest.raises(InvalidInput):
            await engine.schedules.put("hourly", unfit, report, "x")
        with pytest.raises(InvalidInput, match="starts anyway"):
            await engine.schedules.put("hourly", Schedule(every=HOUR, late_after=60, late=report), report, "x")
