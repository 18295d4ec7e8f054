"""Stuck: finished processes fill the tables, some sooner than others. Rules archive and remove each at its age."""

from __future__ import annotations

import asyncio
import gzip
import logging
from pathlib import Path
from typing import Any

import pytest

from perdure import RetentionRule, limits
from perdure.clock import SECOND
from perdure.errors import StoreUnavailable
from perdure.kernel import archive
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import id_text
from perdure.kernel.note import RETENTION, Note
from perdure.kernel.process import Status
from perdure.kernel.retention import RetentionState
from perdure.retention.remover import Remover
from perdure.runtime.sweeps import finished_long_ago
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Pruned
from perdure.testing.conformance.removing import releasing, retried
from perdure.testing.conformance.trial import forced, resting
from tests.sweeps.test_finished_long_ago import ended
from tests.sweeps.watch import DAY, LIMIT, Watch

HOUR = 3600.0


async def ruled(watch: Watch, *rules: RetentionRule) -> SweepContext:
    """The ward of one more supervisor, whose worker has these rules."""
    context = await watch.context()
    context.remover = remover(watch, *rules)
    return context


def remover(watch: Watch, *rules: RetentionRule) -> Remover:
    return Remover(watch.store, (*rules, RetentionRule(after=DAY)), round(DAY * SECOND), watch.machine.new_id)


def lines(folder: Path) -> list[str]:
    """The ids of the processes in the archive, each as often as it is there."""
    found = []
    for file in sorted(folder.iterdir()):
        assert file.name.endswith((".jsonl", ".jsonl.gz")), f"{file} is not finished"
        raw = file.read_bytes()
        text = gzip.decompress(raw) if file.name.endswith(".gz") else raw
        found += [id_text(archive.read(line).process.id) for line in text.splitlines(keepends=True)]
    return found


async def stored(watch: Watch) -> list[bytes]:
    return sorted(row.id for row in await watch.trial.stored())


async def state(watch: Watch) -> RetentionState:
    [note] = [note for note in await watch.store.records(Note) if note.name == RETENTION]
    return note.read(RetentionState)


async def test_each_process_goes_at_the_age_that_the_first_rule_says_which_fits(watch: Watch) -> None:
    context = await ruled(
        watch,
        RetentionRule(kind="or*", status="failed", after="3h"),
        RetentionRule(kind="order", after=HOUR),
        RetentionRule(kind="payment", after=None),
    )
    done, failed = await ended(watch), await ended(watch, Status.FAILED)
    kept, other = await ended(watch, kind="payment"), await ended(watch, kind="greeting")
    await watch.passed(HOUR - 1)
    assert await finished_long_ago.sweep(context) == 0
    await watch.passed(2)
    assert await finished_long_ago.sweep(context) == 1
    assert done.id not in await stored(watch)
    await watch.passed(2 * HOUR)
    assert await finished_long_ago.sweep(context) == 1
    assert failed.id not in await stored(watch)
    await watch.passed(DAY - 3 * HOUR)
    assert await finished_long_ago.sweep(context) == 1, "what no rule fits goes by the retention of the worker"
    assert await stored(watch) == [kept.id] and other.id != kept.id
    await watch.passed(100 * DAY)
    assert await finished_long_ago.sweep(context) == 0


async def test_a_worker_without_rules_leaves_the_processes_to_one_that_has_some(watch: Watch) -> None:
    without = await watch.context()
    context = await ruled(watch, RetentionRule(kind="order", after=None))
    await ended(watch)
    await watch.passed(DAY + 1)
    assert await finished_long_ago.sweep(context) == 0
    assert await finished_long_ago.sweep(without) == 0
    await watch.passed(DAY)
    assert await finished_long_ago.sweep(context) == 0, "it says again that it has rules"
    assert await finished_long_ago.sweep(without) == 0
    await watch.passed(DAY + 1)
    assert await finished_long_ago.sweep(without) == 1, "for a day no worker has said that it has rules"


@pytest.mark.parametrize("compress", [True, False])
async def test_a_process_is_in_the_archive_before_it_is_removed(watch: Watch, tmp_path: Path, compress: bool) -> None:
    folder = tmp_path / "old" / "orders"
    context = await ruled(watch, RetentionRule(kind="order", after=HOUR, archive=folder, compress=compress))
    rows = [await ended(watch, key=f"A-{number}") for number in range(3)]
    await watch.passed(HOUR + 1)
    seen: list[list[str]] = []

    async def look(name: str, argument: object) -> None:
        if name == "prune":
            seen.append(lines(folder))

    watch.store.before = look
    assert await finished_long_ago.sweep(context) == 3
    assert sorted(seen[0]) == sorted(id_text(row.id) for row in rows) == sorted(lines(folder))
    [file] = folder.iterdir()
    assert file.name.endswith(".jsonl.gz" if compress else ".jsonl")
    assert context.telemetry.counters["processes_archived"] == 3
    assert await watch.trial.stored() == []


async def test_rule_24_the_key_of_a_process_that_a_rule_removed_still_answers(watch: Watch) -> None:
    context = await ruled(watch, RetentionRule(kind="order", after=HOUR))
    old = await ended(watch, key="A-1")
    await watch.passed(HOUR + 1)
    assert await finished_long_ago.sweep(context) == 1
    [answer] = await watch.store.start([Start(watch.trial.process(key="A-1"))])
    assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, old.id)


async def test_a_worker_killed_between_archive_and_removal_loses_nothing_and_the_next_one_goes_on(
    watch: Watch, tmp_path: Path
) -> None:
    rule = RetentionRule(kind="order", after=HOUR, archive=tmp_path / "old")
    rows = [await ended(watch) for _ in range(3)]
    await watch.passed(HOUR + 1)

    async def killed(name: str, argument: object) -> None:
        if name == "prune":
            raise StoreUnavailable("killed")

    watch.store.before = killed
    with pytest.raises(StoreUnavailable):
        await remover(watch, rule).round()
    watch.store.before = _nothing
    assert len(await stored(watch)) == len(lines(tmp_path / "old")) == 3
    next_one = remover(watch, rule)
    assert (await next_one.round()).removed == 0, "the killed one may still be at work"
    await watch.passed(limits.RETENTION_LEASE_SECONDS + 1)
    done = await next_one.round()
    assert (done.removed, done.archived) == (3, 3)
    assert sorted(lines(tmp_path / "old")) == sorted([id_text(row.id) for row in rows] * 2)
    assert await stored(watch) == []


async def test_two_at_once_remove_each_process_once_and_archive_it_twice_at_most(watch: Watch, tmp_path: Path) -> None:
    rule = RetentionRule(kind="order", after=HOUR, archive=tmp_path / "old")
    ids = [id_text((await ended(watch)).id) for _ in range(4)]
    await watch.passed(HOUR + 1)
    both, there = asyncio.Barrier(2), asyncio.Event()

    async def meet(name: str, argument: object) -> None:
        if name == "prune":
            there.set()
            await asyncio.wait_for(both.wait(), LIMIT)

    watch.store.before = meet
    first = asyncio.create_task(remover(watch, rule).round())
    await asyncio.wait_for(there.wait(), LIMIT)
    found = [await remover(watch, rule).round(at_once=True), await first]
    watch.store.before = _nothing
    assert sum(one.removed for one in found) == 4
    assert sorted(lines(tmp_path / "old")) == sorted(ids * 2)
    assert await stored(watch) == []


async def test_what_has_changed_since_it_was_archived_is_not_removed(watch: Watch, tmp_path: Path) -> None:
    one = remover(watch, RetentionRule(kind="order", after=HOUR, archive=tmp_path))
    row = await ended(watch, key="A-1")
    await watch.passed(HOUR + 1)

    async def commanded(name: str, argument: object) -> None:
        if name == "prune":
            watch.store.before = _nothing
            await watch.trial.done(releasing(row))

    watch.store.before = commanded
    done = await one.round()
    assert (done.archived, done.removed) == (1, 0)
    assert await stored(watch) == [row.id]


async def test_an_archive_that_cannot_be_written_keeps_its_processes_and_holds_up_no_other_rule(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    context = await ruled(
        watch, RetentionRule(kind="order", after=HOUR, archive=tmp_path / "file"), RetentionRule(kind="x", after=HOUR)
    )
    row = await ended(watch)
    await ended(watch, kind="x")
    await watch.passed(HOUR + 1)
    with caplog.at_level(logging.WARNING, "perdure"):
        assert await finished_long_ago.sweep(context) == 1
        assert await finished_long_ago.sweep(context) == 0
    assert await stored(watch) == [row.id]
    [told] = [record.getMessage() for record in caplog.records if "archive" in record.getMessage()]
    assert "cannot be written, so nothing is removed" in told and "make it writable" in told
    (tmp_path / "file").unlink()
    assert await finished_long_ago.sweep(context) == 1
    assert lines(tmp_path / "file") == [id_text(row.id)]


async def test_another_worker_goes_on_where_the_last_one_stopped(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    rules = RetentionRule(kind="payment", after=None), RetentionRule(kind="order", after=HOUR)
    kinds = ("payment", "payment", "order", "payment", "order")
    rows = []
    for kind in kinds:
        rows.append(await ended(watch, kind=kind))
        await watch.passed(1)
    await watch.passed(HOUR)
    found = []
    for _ in range(3):
        done = await remover(watch, *rules).round()
        found.append((done.removed, done.more))
    assert found == [(0, True), (1, True), (1, False)]
    assert await stored(watch) == sorted(rows[number].id for number in (0, 1, 3))
    places = {one.rule: one for one in (await state(watch)).rules.values()}
    assert places["order after 3600s"].removed == 2
    assert places["order after 3600s"].place == (rows[-1].changed_at, rows[-1].id)


async def test_a_row_that_is_locked_is_looked_at_again_within_the_next_hours(watch: Watch) -> None:
    if not watch.ground.locks_rows:
        pytest.skip("this database locks no single rows")
    one = remover(watch, RetentionRule(kind="order", after=HOUR))
    rows = [await ended(watch) for _ in range(3)]
    await watch.passed(HOUR + 1)
    async with watch.ground.locked(rows[1].id):
        done = await one.round()
    assert (done.removed, done.left) == (2, 1)
    assert (await one.round()).removed == 0
    await watch.passed(limits.RETENTION_AGAIN_SECONDS + 1)
    assert [(await one.round()).removed for _ in range(2)] == [0, 1]
    assert await stored(watch) == []


async def test_a_process_that_a_person_retries_meanwhile_keeps_its_former_runs(watch: Watch) -> None:
    one = remover(watch, RetentionRule(kind="order", after=HOUR))
    row = await ended(watch)
    for _ in range(3):
        again = await watch.trial.done(retried(row))
        row = await watch.trial.done(forced(again, EventType.TERMINATED, status=Status.CANCELLED, due_at=None))
    await watch.passed(HOUR + 1)
    runs = [await watch.store.history(row.id, run) for run in (1, 2, 3, 4)]

    async def retry(name: str, argument: object) -> None:
        if name == "prune":
            watch.store.before = _nothing
            await watch.trial.done(retried(row))

    watch.store.before = retry
    assert (await one.round()).removed == 0
    assert [await watch.store.history(row.id, run) for run in (1, 2, 3, 4)] == runs


async def test_a_process_with_a_former_run_goes_alone_since_its_row_does_not_count_the_events_of_that(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = remover(watch, RetentionRule(kind="order", after=HOUR))
    rows = [await ended(watch) for _ in range(4)]
    for row in rows[1:3]:
        again = await watch.trial.done(retried(row))
        await watch.trial.done(forced(again, EventType.TERMINATED, status=Status.CANCELLED, due_at=None))
    await watch.passed(HOUR + 1)
    together: list[int] = []
    prune = watch.store.prune

    async def counted(*given: Any, **narrow: Any) -> Pruned:
        together.append(len(narrow["only"]))
        return await prune(*given, **narrow)

    monkeypatch.setattr(watch.store, "prune", counted)
    assert (await one.round()).removed == 4
    assert sorted(together) == [1, 1, 2]


async def test_all_rules_keep_their_places_and_counts_though_no_worker_was_there_for_days(watch: Watch) -> None:
    one = remover(watch, RetentionRule(kind="order", after=HOUR), RetentionRule(kind="payment", after=HOUR))
    for kind in ("order", "payment"):
        await ended(watch, kind=kind)
    await watch.passed(HOUR + 1)
    assert (await one.round()).removed == 2
    before = {rule.rule: (rule.removed, rule.at) for rule in (await state(watch)).rules.values()}
    assert [removed for removed, _ in before.values()] == [1, 1, 0]
    await watch.passed(3 * DAY)
    await one.round()
    assert {rule.rule: (rule.removed, rule.at) for rule in (await state(watch)).rules.values()} == before


@pytest.mark.parametrize("record", [b'{"id":"nonsense"}', b'{"id":"ab"}', b"nonsense"])
async def test_a_damaged_record_of_a_child_keeps_the_children_of_that_parent_and_nothing_else(
    watch: Watch, record: bytes
) -> None:
    one = remover(watch, RetentionRule(kind="order", after=HOUR))
    row = await watch.trial.owned(await watch.trial.worker())
    begun = Event(row.events + 1, 1, EventType.CHILD_STARTED, row.created_at, "1", "parcel", record)
    parent = await watch.trial.done(resting(row, row.created_at + round(100 * DAY * SECOND), events=(begun,)))
    kept, other = await ended(watch, parent=parent.id), await ended(watch)
    await watch.passed(HOUR + 1)
    assert (await one.round()).removed == 1
    assert await stored(watch) == sorted([parent.id, kept.id]) and other.id != kept.id


async def test_looking_with_nothing_to_remove_writes_nothing_but_once_an_hour(watch: Watch) -> None:
    one = remover(watch, RetentionRule(kind="order", after=HOUR))
    await one.round()
    before = (await watch.store.records(Note))[0].version
    await watch.passed(60)
    await one.round()
    assert (await watch.store.records(Note))[0].version == before
    await watch.passed(limits.RETENTION_NOTED_SECONDS)
    await one.round()
    assert (await watch.store.records(Note))[0].version > before


async def _nothing(name: str, argument: object) -> None:
    """Let every call through."""
