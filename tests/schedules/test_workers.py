"""Schedules and the workers that keep them: any worker does, several do no harm, and a step that runs twice neither."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from perdure import Engine, Schedule, Status, limits, testing, workflow
from perdure.authoring.schedule import occurrences
from perdure.authoring.schedule.machine import KIND
from perdure.authoring.workflow import Workflow
from perdure.errors import DefinitionError, StoreUnavailable
from perdure.kernel.event import EventType
from perdure.kernel.process import Process
from perdure.store.base import Search
from perdure.store.sealed.offload import Folder
from perdure.testing.faults import Outage
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_sealed_life import NEW, sealed
from tests.schedules.reports import done, report

NOW = datetime.now(UTC).replace(microsecond=0)
LATE = Schedule(at=NOW - timedelta(hours=1))
"""It has come before any worker is there."""


async def test_a_client_makes_it_and_a_worker_that_does_not_know_the_workflow_keeps_it(opened: Open) -> None:
    client, _ = await opened()
    handle = await client.schedules.put("once", LATE, report, "x")
    assert (await handle.status()).next == NOW - timedelta(hours=1)
    stranger, _ = await opened(work=True, workflows=[])
    await until_row(stranger, (await handle.status()).process, lambda row: b'"started":1' in (row.state or b""))
    assert done == [] and (await handle.status()).started == 1
    await opened(work=True, workflows=[report])
    await until(lambda: done)
    assert done == [("x", (NOW - timedelta(hours=1)).isoformat())]


async def test_many_put_the_same_at_once_and_it_comes_once(opened: Open) -> None:
    engines = [(await opened(work=True, workflows=[report]))[0] for _ in range(3)]
    await asyncio.gather(*(engine.schedules.put("once", LATE, report, "x") for engine in engines for _ in range(3)))
    handle = engines[0].schedules.handle("once")
    row = await engines[0].row((await handle.status()).process)
    await until_row(engines[0], (await handle.status()).process, lambda row: row.seen == row.inbox and not row.owner)
    assert row.kind == KIND and (await handle.status()).started == len(done) == 1


async def test_a_round_that_runs_twice_starts_each_occurrence_once(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt has started some, and fails; one of them has ended by the time of the second."""
    engine, _ = await opened(work=True, workflows=[report])
    whole = occurrences._Going.go

    async def fails_at_first(self: occurrences._Going) -> occurrences.RoundReport:
        answer = await whole(self)
        if occurrences.attempt().number == 1:
            raise ConnectionError("the answer of the database is lost")
        return answer

    monkeypatch.setattr(occurrences._Going, "go", fails_at_first)
    hourly = Schedule(every=3600, overlap="allow")
    handle = await engine.schedules.put("hourly", hourly, report, "x")
    assert await handle.backfill(NOW - timedelta(hours=5), NOW) == len(await engine.list(Search(kind="report")))
    await until(lambda: len(done) == 5)
    assert len(set(done)) == 5


async def test_a_worker_runs_what_its_schedules_start_without_a_claim(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[report])
    handle = await engine.schedules.put("once", LATE, report, "x")
    await until(lambda: bool(done))
    (process,) = await engine.list(Search(kind="report"))
    await engine.process(process.id).result()
    claims, held = engine.telemetry.counters["claims"], engine.telemetry.counters["starts"]
    assert (claims, held) == (0, 2), f"the schedule and its process: {await handle.status()}"


async def test_what_a_worker_that_others_have_ended_wanted_to_start_is_started_by_whoever_may(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=[report])
    whole = occurrences._Going.go

    async def ended_meanwhile(self: occurrences._Going) -> occurrences.RoundReport:
        await engine.store.retire(engine.worker.incarnation.id, None, died=True)
        return await whole(self)

    monkeypatch.setattr(occurrences._Going, "go", ended_meanwhile)
    await engine.schedules.put("once", LATE, report, "x")
    await until(lambda: done)
    assert engine.telemetry.counters["starts_existing"] >= 1  # the start as its own was refused
    assert len(await engine.list(Search(kind="report"))) == len(done) == 1


def _all_heard(letters: int, row: Process) -> bool:
    return bool(row.state) and row.owner is None and row.seen == row.inbox == letters


async def test_a_schedule_in_code_is_kept_by_whoever_hosts_the_workflow_and_put_once(opened: Open) -> None:
    def nightly(schedule: Schedule) -> Workflow[..., None]:
        @workflow(name="nightly", schedule=schedule)
        async def tidy(scheduled_at: datetime) -> None:
            done.append(("tidy", scheduled_at.isoformat()))

        return tidy

    for schedule in (Schedule("@yearly"), Schedule("@yearly"), LATE):
        engine, _ = await opened(work=True, workflows=[nightly(schedule)])
        handle = engine.schedules.handle("nightly")
        letters = 1 if schedule is LATE else 0
        heard = partial(_all_heard, letters)
        await until_row(engine, (await handle.status()).process, heard)
        await until(lambda begun=schedule is LATE: done or not begun)
        await engine.close()
    client, _ = await opened()
    handle = client.schedules.handle("nightly")
    history = await (await handle.process()).history()
    assert [event.type for event in history].count(EventType.MESSAGE_RECEIVED) == 1
    assert (await handle.status()).times == f"at {(NOW - timedelta(hours=1)).isoformat().replace('+00:00', 'Z')}"
    assert done == [("tidy", (NOW - timedelta(hours=1)).isoformat())]


async def test_a_worker_begins_although_the_schedule_in_its_code_was_ended_by_a_person(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(name="nightly", schedule=Schedule("@yearly"))
    async def tidy() -> None: ...

    engine, _ = await opened(work=True, workflows=[tidy])
    await (await engine.schedules.handle("nightly").process()).terminate()
    await engine.close()
    tidy.schedule = Schedule("@monthly")
    await opened(work=True, workflows=[tidy])
    assert "the schedule of workflow 'nightly' is not kept: the process of schedule 'nightly' was ended" in caplog.text


async def test_a_worker_begins_although_the_schedule_in_its_code_takes_no_more_messages(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow(name="nightly", schedule=Schedule("@yearly"))
    async def tidy() -> None: ...

    engine, _ = await opened(work=True, workflows=[tidy])
    process = await engine.schedules.handle("nightly").process()
    await process.hold()
    await process.signal("resume")
    await engine.close()
    monkeypatch.setattr(limits, "INBOX_RECORDS", 1)
    tidy.schedule = Schedule("@monthly")
    await opened(work=True, workflows=[tidy])
    assert "the schedule of workflow 'nightly' is not kept: the inbox of process" in caplog.text


@pytest.mark.parametrize("lost", ["key", "folder"])
async def test_a_worker_begins_although_the_schedule_in_its_code_cannot_be_read_by_it(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    @workflow(name="nightly", schedule=Schedule("@yearly"))
    async def tidy() -> None: ...

    there = {"codecs": sealed(), "offload": Folder(tmp_path / "there", above=1)}
    engine, _ = await opened(work=True, workflows=[tidy, report], **there)
    await engine.close()
    here = {"codecs": sealed(new=NEW)} if lost == "key" else there | {"offload": Folder(tmp_path / "away", above=1)}
    tidy.schedule = Schedule("@monthly")
    engine, _ = await opened(work=True, workflows=[tidy, report], **here)
    assert "the schedule of workflow 'nightly' cannot be read here, and is left as it is: " in caplog.text
    assert await (await engine.start(report, "x")).result(LIMIT) == "x"
    await engine.close()
    engine, _ = await opened(work=True, workflows=[tidy, report], **there)
    handle = engine.schedules.handle("nightly")
    await until_row(engine, (await handle.status()).process, partial(_all_heard, 1))
    assert (await handle.status()).times == "0 0 1 * * UTC"


async def test_a_worker_does_not_begin_if_the_database_does_not_answer_what_its_schedules_are(opened: Open) -> None:
    @workflow(name="nightly", schedule=Schedule("@yearly"))
    async def tidy() -> None: ...

    engine, store = await opened(workflows=[tidy])
    Outage("search").upon(store).away = True
    with pytest.raises(StoreUnavailable):
        await engine.schedules.declare(tidy, Schedule("@yearly"))


async def test_a_schedule_survives_its_worker_and_goes_on_where_it_was(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[report])
    handle = await engine.schedules.put("often", Schedule(every=1, overlap="allow"), report, "x")
    await until(lambda: done)
    await engine.close(0)
    engine, _ = await opened(work=True, workflows=[report])
    before = len(done)
    await until(lambda: len(done) > before)
    await engine.schedules.handle(handle.name).remove()
    views = await engine.list(Search(kind="report"))
    assert len({view.key for view in views}) == len(views) and len({at for _, at in done}) == len(done)


async def test_a_broken_one_says_so_and_goes_on_once_its_cause_is_gone(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: occurrences._Going) -> None:
        raise DefinitionError("a fault of ours")

    engine, _ = await opened(work=True, workflows=[report])
    monkeypatch.setattr(occurrences._Going, "go", refuses)
    handle = await engine.schedules.put("once", LATE, report, "x")
    await until_row(engine, (await handle.status()).process, lambda row: row.status is Status.BROKEN)
    assert (await handle.status()).status == "broken"
    monkeypatch.undo()
    await (await handle.process()).retry()
    await until(lambda: done)


def test_a_workflow_that_needs_arguments_has_no_schedule_in_code() -> None:
    with pytest.raises(DefinitionError, match=r"has a schedule, which starts it without arguments: .* Give its param"):

        @workflow(schedule=LATE)
        async def greets(name: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"Write schedule=Schedule\('0 3 \* \* \*'\)"):

        @workflow(schedule="0 3 * * *")  # type: ignore[arg-type]
        async def tidies() -> None: ...


@pytest.mark.long
async def test_a_schedule_a_year_old_loads_as_fast_as_a_new_one() -> None:
    begins = datetime(2026, 3, 2, tzinfo=UTC)
    async with testing.engine(begins=begins, workflows=[report]) as engine:
        handle = await engine.schedules.put("hourly", Schedule(every=3600, overlap="allow"), report, "x")
        await engine.sleep(300 * 3600 + 1)
        row = await engine.row((await handle.status()).process)
        assert row.run > 1 and row.events < 700 and len(set(done)) == len(done) == 300


async def test_one_that_cannot_be_read_says_so_and_does_not_hide_the_others(sqlite_url: str) -> None:
    async with Engine(sqlite_url, work=True, workflows=[report]) as engine:
        for name in ("a", "b"):
            handle = await engine.schedules.put(name, Schedule("@yearly"), report, "x")
            await until_row(engine, (await handle.status()).process, lambda row: row.state and not row.owner)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as raw:
        raw.execute("UPDATE process SET state = ? WHERE key = 'a'", (b'{"@machine":{"run":1,"method":1},"name":7}',))
    async with Engine(sqlite_url) as client:
        damaged, other = await client.schedules.list()
        assert (damaged.name, damaged.paused, damaged.next) == ("a", "it cannot be read", None)
        assert "name" in damaged.times and (other.name, other.paused) == ("b", "")


async def test_its_processes_have_the_priority_that_was_given(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[report])
    await engine.schedules.put("once", LATE, report.options(priority=2), "x")
    await until(lambda: done)
    [view] = await engine.list(Search(kind="report"))
    assert (await engine.row(view.id)).priority == 2
