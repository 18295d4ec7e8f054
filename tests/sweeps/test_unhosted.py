"""Stuck: a process is due and no worker hosts its code. That is reported; there is nobody to do it."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec import json

from perdure import limits
from perdure.client.recovery import Recovery
from perdure.clock import SECOND
from perdure.kernel.missing import MissingRule
from perdure.kernel.queue import Queue
from perdure.kernel.run import Opening
from perdure.kernel.worker import Offer, WorkerRow
from perdure.runtime.sweeps import unhosted
from tests.sweeps.watch import Watch, order

PAIRS = (("order", "1"), ("@bank", ""), ("forgotten", "1"))


async def test_processes_that_nobody_hosts_are_reported_by_kind_and_version_and_not_touched(watch: Watch) -> None:
    context, known = await watch.context(), unhosted.Known()
    rows = [await watch.trial.started(kind="forgotten", code=code) for code in ("", "", "2")]
    assert await unhosted.sweep(context, known) == 0
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == 3
    texts = sorted(finding.text for finding in watch.found)
    assert len(texts) == 2
    assert "1 processes of kind 'forgotten' version '2'" in texts[0]
    assert "2 processes of kind 'forgotten'" in texts[1]
    assert "start a worker that hosts it" in texts[1]
    assert await watch.untouched(rows)


async def test_tasks_that_wait_in_a_queue_that_nobody_serves_are_reported_by_its_name(watch: Watch) -> None:
    context, known = await watch.context(order), unhosted.Known()
    rows = [await watch.trial.started(kind="@bank", code=label) for label in ("", "", "till-3")]
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == 3
    labelled, plain = sorted((finding.text for finding in watch.found), key=lambda text: "till-3" not in text)
    assert "2 steps have been due in queue 'bank' for over a minute" in plain
    assert plain.endswith("no live worker serves it; start one that does: perdure worker MODULE --queues bank")
    assert context.telemetry.counters["queues_unpolled"] == 1, "two labels of one queue"
    assert "1 steps have been due in queue 'bank' on a worker with the label 'till-3'" in labelled
    assert "--queues bank --labels till-3" in labelled
    assert await watch.untouched(rows)


async def test_tasks_that_a_full_or_blocked_queue_keeps_are_reported_as_that(watch: Watch) -> None:
    context, known = await watch.context(order), unhosted.Known()
    now = await watch.store.now()
    blocked = Queue("bank", 1, blocked_at=now, blocked_by="ana", blocked_why="no money")
    await watch.store.records(Queue, [blocked, Queue("till", 1, concurrency=1)])
    await watch.trial.owned(await watch.trial.worker(), kind="@till")
    rows = [await watch.trial.started(kind=kind) for kind in ("@bank", "@till", "@till")]
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == 0
    assert context.telemetry.counters["processes_overloaded"] == 3
    full, closed = sorted((finding.text for finding in watch.found), key=lambda text: "blocked" in text)
    assert "1 steps have been due for over a minute: queue bank is blocked by ana: no money" in closed
    assert "2 steps have been due for over a minute: queue till is full (1 of 1)" in full
    assert await watch.untouched(rows)


async def test_what_live_workers_host_and_do_not_take_is_told_as_overload_and_not_as_unhosted(watch: Watch) -> None:
    context, known = await watch.context(order), unhosted.Known()
    offer = Offer(frozenset({("order", "1"), ("@bank", "")})).encode()
    await watch.passed(61)
    busy, task, _ = [await watch.trial.started(kind=kind, code=code) for kind, code in PAIRS]
    await watch.passed(61)
    await watch.store.enlist(WorkerRow(b"w" * 16, "busy:1", offer), 3600 * SECOND)
    assert await unhosted.sweep(context, known) == 1
    assert context.telemetry.counters["processes_overloaded"] == 2
    texts = {finding.subject: finding.text for finding in watch.found}
    assert "the 1 live workers that host it are all busy; start one more" in texts[busy.id]
    assert "the 1 live workers that serve it are all busy" in texts[task.id]
    assert sum("no live worker hosts it" in text for text in texts.values()) == 1
    assert await watch.untouched([busy, task]), "nothing is put into a queue a second time"


async def test_a_process_is_counted_once_however_often_it_is_found(watch: Watch) -> None:
    context, known = await watch.context(), unhosted.Known()
    await watch.trial.started(kind="forgotten")
    await watch.passed(61)
    assert [await unhosted.sweep(context, known) for _ in range(3)] == [1, 0, 0]
    assert len(watch.found) == 1
    await watch.trial.started(kind="forgotten")
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == 1
    assert "2 processes" in watch.found[-1].text


async def test_what_is_hosted_owned_or_due_later_is_not_reported(watch: Watch) -> None:
    context, known = await watch.context(order), unhosted.Known()
    owner = await watch.trial.worker()
    row = await watch.trial.owned(owner)
    await watch.passed(50)
    await watch.trial.beat(owner, row)
    await watch.passed(20)
    assert await unhosted.sweep(context, known) == 0
    assert watch.found == []


async def test_it_is_found_no_more_when_somebody_takes_it(watch: Watch) -> None:
    context, known = await watch.context(), unhosted.Known()
    row = await watch.trial.started()
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == 1
    [taken] = (await watch.trial.claim(context.incarnation.id)).claimed
    assert taken.process.id == row.id
    assert await unhosted.sweep(context, known) == 0
    assert known.ids == frozenset()


async def test_a_round_reads_a_bounded_batch_and_reports_it_once(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context, known = await watch.context(), unhosted.Known()
    for _ in range(3):
        await watch.trial.started(kind="forgotten")
    await watch.passed(61)
    assert [await unhosted.sweep(context, known) for _ in range(3)] == [2, 0, 0]


async def test_two_supervisors_at_once_each_report_and_change_nothing(watch: Watch) -> None:
    rows = [await watch.trial.started(kind="forgotten")]
    await watch.passed(61)
    assert await watch.at_once(lambda context: unhosted.sweep(context, unhosted.Known()), "search") == [1, 1]
    assert await watch.untouched(rows)


async def test_after_a_store_error_the_next_round_reports_it(watch: Watch) -> None:
    context, known = await watch.context(), unhosted.Known()
    await watch.trial.started(kind="forgotten")
    await watch.passed(61)
    assert await watch.after_an_outage(context, partial(unhosted.sweep, known=known), "search") == 1


async def test_with_a_rule_what_waits_for_a_version_that_nobody_hosts_begins_again_with_that_of_new_ones(
    watch: Watch,
) -> None:
    context, known = await watch.context(order), unhosted.Known()
    context.missing = {"order": MissingRule(1, versions=True), "forgotten": MissingRule(1, versions=True)}
    old, other = await watch.trial.started(code="0"), await watch.trial.started(kind="forgotten", code="0")
    elsewhere = await watch.trial.started(code="0.5")
    offer = Offer(frozenset({("order", "0.5")})).encode()
    await watch.passed(61)
    await watch.store.enlist(WorkerRow(b"w" * 16, "busy:1", offer), 3600 * SECOND)
    recovery = Recovery(watch.store)
    await recovery.pause(who="Ann")
    await unhosted.sweep(context, known)
    assert await watch.untouched([old, other, elsewhere])
    await recovery.resume()
    await unhosted.sweep(context, known)
    assert await watch.untouched([other, elsewhere])
    again = await watch.sound(old)
    assert (again.code, again.run, again.owner, again.due_at) == ("1", 2, None, await watch.store.now())
    [opened] = await watch.store.history(old.id, 2)
    opening = json.decode(opened.payload or b"", type=Opening)
    assert (opening.automatic, opening.sender["who"], opening.sender["origin"]) == (1, "perdure", "automatic")
    assert "version '0', which no live worker hosts" in opening.sender["why"]
    assert context.telemetry.counters["processes_begun_again"] == 1


async def test_without_versions_in_its_rule_a_version_that_nobody_hosts_is_left_alone(watch: Watch) -> None:
    context, known = await watch.context(order), unhosted.Known()
    context.missing = {"order": MissingRule(1)}
    old = await watch.trial.started(code="0")
    await watch.passed(61)
    assert await unhosted.sweep(context, known) == 1
    assert await watch.untouched([old])
