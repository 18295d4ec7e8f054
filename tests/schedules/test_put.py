"""What a schedule is given when it is put reaches its processes, or is refused; and what its verbs answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Engine, Schedule, Search, Status, context, testing, workflow
from perdure.authoring.schedule import occurrences
from perdure.errors import (
    CallRefused,
    CallUnanswered,
    DefinitionError,
    IllegalMove,
    InvalidInput,
    PayloadTooLarge,
    ScheduleNotFound,
)
from perdure.limits import ATTRIBUTES_BYTES
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.schedules.reports import done, report

HOUR = 3600
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
HOURLY = Schedule(every=HOUR)


@workflow(name="report of a tenant")
async def report_of_a_tenant(who: str = "") -> None:
    done.append((who, context().get("tenant", "")))


async def test_the_context_that_is_put_with_a_schedule_goes_to_each_of_its_processes() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        options = report_of_a_tenant.options(context={"tenant": "acme"}, attributes={"branch": "Bern"})
        handle = await engine.schedules.put("hourly", HOURLY, options, "x")
        await engine.sleep(HOUR + 1)
        await (await handle.trigger()).result()
        assert done == [("x", "acme")] * 2
        assert (await handle.status()).context == {"tenant": "acme"}
        assert (await handle.status()).attributes == {"branch": "Bern"}
        views = await engine.list(Search(kind="report of a tenant"))
        assert [view.context for view in views] == [{"tenant": "acme"}] * 2
        assert {*views[0].attributes} == {"branch", "schedule", "scheduled_at"}
        await engine.schedules.put("hourly", HOURLY, report_of_a_tenant, "x")
        await (await handle.trigger()).result()
        assert done[2:] == [("x", "")] and (await handle.status()).context is None


async def test_the_workflow_for_what_comes_late_has_a_context_of_its_own_also_in_code(opened: Open) -> None:
    late = report_of_a_tenant.options(context={"tenant": "late"})

    @workflow(name="nightly", schedule=Schedule(at=datetime.now(UTC), late_after=0, late=late))
    async def nightly() -> None: ...

    await opened(work=True, workflows=[nightly, report_of_a_tenant])
    await until(lambda: done)
    assert done == [("", "late")]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"deadline": 0}, InvalidInput),
        ({"deadline": -1}, InvalidInput),
        ({"deadline": False}, InvalidInput),
        ({"context": "acme"}, InvalidInput),
        ({"context": {1: "acme"}}, InvalidInput),
        ({"context": {"tenant": "a" * 5_000}}, PayloadTooLarge),
        ({"context": {"tenant": "a" * 2_000}, "attributes": {"a": "a" * (ATTRIBUTES_BYTES - 200)}}, PayloadTooLarge),
    ],
)
async def test_what_a_start_would_refuse_is_refused_when_it_is_put(
    options: dict[str, Any], error: type[Exception]
) -> None:
    async with testing.engine() as engine:
        with pytest.raises(error):
            await engine.start(report.options(**options), "x")
        with pytest.raises(error):
            await engine.schedules.put("hourly", HOURLY, report.options(**options), "x")
        assert await engine.schedules.list() == []


# -- a schedule that cannot answer -----------------------------------------------------------------------------------


def refuses(self: occurrences._Going) -> None:
    raise DefinitionError("a fault of ours")


async def test_who_asks_a_schedule_that_breaks_hears_why_and_that_it_is_done_after_all_once_it_goes_on(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=[report])
    handle = await engine.schedules.put("nightly", Schedule("@yearly"), report, "x")
    await until_row(engine, (await handle.status()).process, lambda row: row.state and row.owner is None)
    monkeypatch.setattr(occurrences._Going, "go", refuses)
    with pytest.raises(CallRefused, match=r"schedule 'nightly' is broken: .*a fault of ours.*`perdure retry") as caught:
        await handle.trigger(timeout=LIMIT)
    assert "a fault of ours" in caught.value.detail
    await until_row(engine, (await handle.status()).process, lambda row: row.status is Status.BROKEN)
    with pytest.raises(CallUnanswered, match=r"schedule 'nightly' is broken: .*a fault of ours.*`perdure retry"):
        await handle.backfill(MONDAY, datetime(2027, 1, 1, tzinfo=UTC), timeout=LIMIT)
    monkeypatch.undo()
    await (await handle.process()).retry()
    await until(lambda: len(done) == 2)
    assert (await started(engine)) == 2


async def started(engine: Engine) -> int:
    return len(await engine.list(Search(kind="report")))


async def test_who_asks_a_schedule_that_was_removed_or_ended_hears_which_it_was() -> None:
    async with testing.engine(begins=MONDAY) as engine:
        removed = await engine.schedules.put("removed", HOURLY, report, "x")
        ended = await engine.schedules.put("ended", HOURLY, report, "x")
        await removed.remove()
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'removed'"):
            await removed.trigger()
        await (await ended.process()).terminate()
        with pytest.raises(IllegalMove, match="the process of schedule 'ended' was ended by a person"):
            await ended.trigger()
