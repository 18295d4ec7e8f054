"""Stuck: a record breaks a law. The constraints should make that impossible; this sweep looks whether they did."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from perdure import limits
from perdure.errors import StoreUnavailable
from perdure.kernel.audit import Audit
from perdure.kernel.commit import Start
from perdure.kernel.finding import KeptFinding
from perdure.kernel.process import Process
from perdure.runtime.sweeps import record_unsound
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.seal import Seal
from perdure.store.sealed.store import SealedStore
from perdure.testing.conformance.trial import finished, going_on, released
from tests.sweeps.watch import Watch

RATE = 50.0


async def auditor(watch: Watch) -> tuple[SweepContext, record_unsound.Position]:
    """The context of a worker that examines records."""
    context = await watch.context()
    context.check_rate = RATE
    return context, record_unsound.Position()


async def unsound(watch: Watch, kind: str = "order") -> Process:
    """A row that counts more events than its history has: no constraint of a row can see that."""
    row = await watch.trial.owned(await watch.trial.worker(), kind=kind)
    commit = released(row, await watch.store.now() + 1)
    return await watch.trial.done(replace(commit, after=replace(commit.after, events=9)))


async def due(watch: Watch) -> Audit:
    """Let time pass until the next page is due."""
    [row] = await watch.store.records(Audit)
    await watch.passed(max(row.due_at - await watch.store.now(), 0) / 1e6 + 0.001)
    return row


async def test_a_record_that_breaks_a_law_is_reported_once_kept_and_not_touched(watch: Watch) -> None:
    context, place = await auditor(watch)
    sound = await watch.trial.owned(await watch.trial.worker())
    await watch.trial.done(going_on(sound))
    assert await record_unsound.sweep(context, place) == 0
    row = await unsound(watch)
    await due(watch)
    assert await record_unsound.sweep(context, place) == len(watch.found) > 0
    assert {finding.subject for finding in watch.found} == {row.id} != {sound.id}
    assert "history_is_gapless" in {finding.law for finding in watch.found}
    told = len(watch.found)
    await due(watch)
    assert await record_unsound.sweep(context, place) == 0 and len(watch.found) == told, "it is news only once"
    kept = await watch.store.records(KeptFinding)
    assert {one.law for one in kept} == {one.law for one in watch.found}
    assert await watch.trial.row(row.id) == row


async def test_a_fault_that_has_gone_is_written_down_and_its_finding_removed_in_the_end(watch: Watch) -> None:
    context, place = await auditor(watch)
    row = await unsound(watch)
    await record_unsound.sweep(context, place)
    mended = released(row, row.due_at or 0, 0)
    await watch.trial.done(replace(mended, after=replace(mended.after, events=1)))
    await due(watch)
    await record_unsound.sweep(context, place)
    gone = await watch.store.records(KeptFinding)
    assert gone and all(one.gone_at is not None for one in gone)
    await watch.passed(limits.FINDING_KEPT_SECONDS + 1)
    await record_unsound.sweep(context, place)
    assert await watch.store.records(KeptFinding) == []


async def test_the_kinds_take_turns_so_that_a_small_one_does_not_wait_for_a_large_one(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECK_ROWS", 2)
    context, place = await auditor(watch)
    for _ in range(7):
        await watch.trial.started(kind="large")
    bad = await unsound(watch, "small")
    found = []
    for _ in range(5):
        found.append(bool(await record_unsound.sweep(context, place)))
        await due(watch)
    assert found == [False, True, False, False, False]
    assert {finding.subject for finding in watch.found} == {bad.id}
    [row] = await watch.store.records(Audit)
    assert (row.checked, row.rounds, row.kinds) == (8, 1, [])


async def test_another_worker_goes_on_where_one_has_stopped_and_none_does_a_page_twice(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECK_ROWS", 2)
    (one, of_one), (other, of_other) = await auditor(watch), await auditor(watch)
    for _ in range(5):
        await watch.trial.started()
    await record_unsound.sweep(one, of_one)
    assert await record_unsound.sweep(other, of_other) == 0
    [row] = await watch.store.records(Audit)
    assert row.checked == 2, "the next page is not due yet"
    await due(watch)
    # The first worker takes a page and dies: nothing is done until the page is due again, and then it is not left out.
    died = replace(row, version=row.version + 1, worker="dead", due_at=await watch.store.now() + 60_000_000)
    await watch.store.records(Audit, [died])
    await record_unsound.sweep(other, of_other)
    assert (await watch.store.records(Audit)) == [died] and of_other.wait <= record_unsound.LONGEST_WAIT_SECONDS
    for _ in range(2):
        await due(watch)
        await record_unsound.sweep(other, of_other)
    [row] = await watch.store.records(Audit)
    assert (row.checked, row.rounds) == (5, 1)


async def test_the_pace_is_that_of_the_rate_and_a_rate_of_nothing_examines_nothing(watch: Watch) -> None:
    context, place = await auditor(watch)
    for _ in range(10):
        await watch.trial.started()
    context.check_rate = 0.0
    watch.store.calls.clear()
    await record_unsound.sweep(context, place)
    assert [name for name, _ in watch.store.calls] == ["records"]
    context.check_rate = 0.01
    await record_unsound.sweep(context, place)
    [row] = await watch.store.records(Audit)
    assert row.due_at - await watch.store.now() > 900_000_000


async def test_what_moves_while_it_is_read_is_not_reported(watch: Watch) -> None:
    context, place = await auditor(watch)
    row = await watch.trial.owned(await watch.trial.worker())

    async def move(name: str, argument: object) -> None:
        if name == "history":
            await watch.store.store.commit([going_on(row)])

    watch.store.before = move  # the row is read by now, and its history is that of a later one
    assert await record_unsound.sweep(context, place) == 0
    assert watch.found == [] == await watch.store.records(KeptFinding)


async def test_what_only_others_can_open_is_not_counted_as_examined(watch: Watch) -> None:
    context, place = await auditor(watch)
    theirs, ours = (SealedStore(watch.store, Seal([AesGcm({id: bytes(32)})])) for id in ("theirs", "ours"))
    for store in (theirs, theirs, ours):
        await store.start([Start(watch.trial.process())])
    context.store = ours
    assert await record_unsound.sweep(context, place) == 0
    [row] = await watch.store.records(Audit)
    assert (row.checked, row.rounds) == (1, 1)


async def test_what_has_ended_is_examined_too(watch: Watch) -> None:
    context, place = await auditor(watch)
    row = await watch.trial.owned(await watch.trial.worker())
    ended = finished(row)
    await watch.trial.done(replace(ended, after=replace(ended.after, events=9)))
    assert await record_unsound.sweep(context, place) > 0


async def test_two_supervisors_at_once_examine_a_page_once_and_change_nothing(watch: Watch) -> None:
    row = await unsound(watch)

    waits = []

    async def look(context: SweepContext) -> int:
        context.check_rate = RATE
        place = record_unsound.Position()
        new = await record_unsound.sweep(context, place)
        waits.append(place.wait)
        return new

    one, two = sorted(await watch.at_once(look, "records", behind=True))
    assert one == 0 < two
    assert waits.count(record_unsound.AGAIN_SECONDS) == 1, "one was quicker, the other looks again later"
    assert await watch.trial.row(row.id) == row


async def test_after_a_store_error_another_round_reads_the_same_page(watch: Watch) -> None:
    context, place = await auditor(watch)
    await unsound(watch)
    assert await watch.after_an_outage(context, partial(record_unsound.sweep, place=place), "count") == 0
    await due(watch)
    assert await record_unsound.sweep(context, place) > 0


async def test_a_fault_is_reported_although_the_answer_to_the_write_of_its_finding_was_lost(watch: Watch) -> None:
    context, place = await auditor(watch)
    row = await unsound(watch)

    async def after(name: str, argument: object) -> None:
        if argument is KeptFinding and await watch.store.store.records(KeptFinding):
            raise StoreUnavailable("the answer was lost")

    nothing, watch.store.after = watch.store.after, after
    with pytest.raises(StoreUnavailable):
        await record_unsound.sweep(context, place)
    watch.store.after = nothing
    await due(watch)
    await record_unsound.sweep(context, place)
    told = [(one.law, one.subject) for one in watch.found]
    assert told and {subject for _, subject in told} == {row.id} and len(told) == len(set(told)), "once each"
