"""The supervisor: every sweep in a loop of its own, counted under its name, and none of them ends for an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.runtime.supervisor import AUDITS, Supervisor
from perdure.runtime.sweeps import owner_gone, record_unsound, unhosted
from perdure.store.base import Overdue, Search
from perdure.testing.conformance.trial import SILENCE
from perdure.testing.faults import Outage
from tests.sweeps.watch import LIMIT, Watch


async def until(true: Callable[[], Any]) -> None:
    """Let the event loop turn until something has happened."""
    async with asyncio.timeout(LIMIT):
        while not true():
            await asyncio.sleep(0.001)


async def until_none(watch: Watch, what: Overdue) -> None:
    """Let the event loop turn until no row is overdue in that way."""
    async with asyncio.timeout(LIMIT):
        while await watch.store.search(Search(overdue=what)):
            await asyncio.sleep(0.001)


async def test_what_a_supervisor_finds_is_counted_under_the_name_of_its_sweep(watch: Watch) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker("silent"))
    await watch.passed(SILENCE / SECOND + 1)
    supervisor = Supervisor(context)
    supervisor.start()
    counters = context.telemetry.counters
    freed = ("orphans_freed", "leases_lapsed")  # its lease has lapsed as well: either sweep may be the first
    rounds = context.telemetry.seconds
    await until(lambda: counters["workers_silent"] and any(counters[name] for name in freed))
    await until(lambda: rounds.get("sweep", [0])[0] >= len(supervisor.loops) - len(AUDITS))
    await supervisor.stop()
    assert counters["workers_silent"] == 1
    assert (await watch.sound(row)).token == row.token + 1


async def test_an_audit_begins_within_its_first_period_and_not_with_the_worker(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await watch.context()
    audits = []

    async def audit(*_: Any) -> int:
        audits.append(1)
        return 0

    monkeypatch.setattr(record_unsound, "sweep", audit)
    monkeypatch.setattr(context.machine, "random", lambda: 0.5)
    for seconds, begun in ((3600.0, False), (0.002, True)):
        monkeypatch.setattr(record_unsound, "SECONDS", seconds)
        supervisor, before = Supervisor(context), context.telemetry.seconds.get("sweep", [0])[0]
        supervisor.start()
        others = len(supervisor.loops) - len(AUDITS)
        await until(lambda: context.telemetry.seconds.get("sweep", [0])[0] >= before + others)  # noqa: B023
        if begun:
            await until(lambda: audits)
        await supervisor.stop()
        assert bool(audits) is begun


async def test_a_round_that_fails_is_counted_and_followed_by_others(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = await watch.context()
    ended = await watch.trial.worker("ended")
    await watch.trial.owned(ended)
    await watch.store.retire(ended, None, False)
    monkeypatch.setattr(owner_gone, "SECONDS", 0.001)
    supervisor = Supervisor(context)
    for loop in supervisor.loops:
        loop.after_error = 0.001
    outage = Outage("search").upon(watch.store)
    outage.away = True
    supervisor.start()
    await until(lambda: outage.failed > 20)
    outage.away = False
    await until(lambda: context.telemetry.counters["orphans_freed"] == 1)
    await supervisor.stop()
    assert context.telemetry.counters["store_errors"] >= 20


async def test_a_heap_is_worked_off_at_once_batch_after_batch(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 3)
    monkeypatch.setattr(limits, "SWEEP_PAGE_SECONDS", 3600.0)
    monkeypatch.setattr(owner_gone, "SECONDS", 3600.0)
    one, two = await watch.context(), await watch.context()
    ended = await watch.trial.worker("ended")
    rows = [await watch.trial.owned(ended) for _ in range(20)]
    await watch.store.retire(ended, None, False)
    supervisors = [Supervisor(one), Supervisor(two)]
    for supervisor in supervisors:
        supervisor.start()
    # An hour lies between the rounds, and each of the two has the other one take a part of its batch away.
    await until_none(watch, Overdue.ORPHANED)
    for supervisor in supervisors:
        await supervisor.stop()
    # The counters may say more than 20: while the clock stands still, both supervisors may make the very same commit,
    # and both are answered that it was applied. Each row has changed once.
    assert [(await watch.sound(row)).token for row in rows] == [row.token + 1 for row in rows]


async def test_a_full_batch_of_what_is_only_reported_is_not_read_again_at_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    for _ in range(3):
        await watch.trial.started(kind="forgotten")
    await watch.passed(61)
    rounds = 0

    async def count(name: str, argument: object) -> None:
        nonlocal rounds
        rounds += name == "search" and argument.overdue is Overdue.UNHOSTED

    watch.store.before = count
    supervisor = Supervisor(context)
    supervisor.start()
    await until(lambda: context.telemetry.counters[unhosted.COUNTER] == 2)
    for _ in range(200):
        await asyncio.sleep(0)
    await supervisor.stop()
    assert rounds == 1
