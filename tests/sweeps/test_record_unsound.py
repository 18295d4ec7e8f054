"""Stuck: a record breaks a law. The constraints should make that impossible; this sweep looks whether they did."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from perdure.kernel.process import Process
from perdure.runtime.sweeps import record_unsound
from perdure.testing.conformance.trial import finished, going_on, released
from tests.sweeps.watch import Watch


async def unsound(watch: Watch) -> Process:
    """A row that counts more events than its history has: no constraint of a row can see that."""
    row = await watch.trial.owned(await watch.trial.worker())
    commit = released(row, await watch.store.now() + 1)
    return await watch.trial.done(replace(commit, after=replace(commit.after, events=9)))


async def test_a_record_that_breaks_a_law_is_reported_under_its_name_and_not_touched(watch: Watch) -> None:
    context, place = await watch.context(), record_unsound.Position()
    sound = await watch.trial.owned(await watch.trial.worker())
    await watch.trial.done(going_on(sound))
    assert await record_unsound.sweep(context, place) == 0
    row = await unsound(watch)
    found = await record_unsound.sweep(context, place)
    assert found == len(watch.found) > 0
    assert {finding.subject for finding in watch.found} == {row.id} != {sound.id}
    assert "history_is_gapless" in {finding.law for finding in watch.found}
    assert await watch.trial.row(row.id) == row


async def test_a_round_reads_a_few_and_the_rounds_go_round_and_round(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_unsound, "ROWS", 2)
    context, place = await watch.context(), record_unsound.Position()
    bad = await unsound(watch)
    for _ in range(4):
        await watch.trial.started()
    counts = [await record_unsound.sweep(context, place) for _ in range(6)]
    assert [count > 0 for count in counts] == [False, False, True, False, False, True]
    assert {finding.subject for finding in watch.found} == {bad.id}


async def test_what_moves_while_it_is_read_is_not_reported(watch: Watch) -> None:
    context, place = await watch.context(), record_unsound.Position()
    row = await watch.trial.owned(await watch.trial.worker())

    async def move(name: str, argument: object) -> None:
        if name == "history":
            await watch.store.store.commit([going_on(row)])

    watch.store.after = move
    assert await record_unsound.sweep(context, place) == 0
    assert watch.found == []


async def test_what_has_ended_is_not_read(watch: Watch) -> None:
    context, place = await watch.context(), record_unsound.Position()
    row = await watch.trial.owned(await watch.trial.worker())
    await watch.trial.done(finished(row))
    watch.store.calls.clear()
    assert await record_unsound.sweep(context, place) == 0
    assert [name for name, _ in watch.store.calls] == ["search"]


async def test_two_supervisors_at_once_each_report_and_change_nothing(watch: Watch) -> None:
    row = await unsound(watch)
    one, two = await watch.at_once(lambda context: record_unsound.sweep(context, record_unsound.Position()), "search")
    assert one == two > 0
    assert await watch.trial.row(row.id) == row


async def test_after_a_store_error_the_next_round_reads_on(watch: Watch) -> None:
    context, place = await watch.context(), record_unsound.Position()
    await unsound(watch)
    assert await watch.after_an_outage(context, partial(record_unsound.sweep, place=place), "history") > 0
