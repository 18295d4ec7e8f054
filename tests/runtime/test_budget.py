"""Budgets of retries: what a worker does while a dependency is down, and when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import ProcessFailed
from perdure.kernel.process import Process
from perdure.kernel.retry import Retry
from perdure.runtime.steps.budget import Budget
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until

MANY = 12
BUDGET = 3
calls: Counter[int] = Counter()
down = [True]


@pytest.fixture(autouse=True)
def _down(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    down[:] = [True]
    monkeypatch.setattr(limits, "RETRY_BUDGET_SECONDS", 1e9)


async def ask(number: int) -> int:
    calls[number] += 1
    if down:
        raise ConnectionError("nobody answers")
    return number


patient = step(retry=Retry(attempts=9, first=0.0, budget=BUDGET), name="patient")(ask)
bounded = step(retry=Retry(attempts=9, first=0.0, budget=BUDGET, total=1.0), name="bounded")(ask)
unbounded = step(retry=Retry(attempts=9, first=0.0, budget=None), name="unbounded")(ask)


@workflow
async def asking(number: int) -> int:
    return await patient(number)


@workflow
async def in_a_hurry(number: int) -> int:
    return await bounded(number)


@workflow
async def stubborn(number: int) -> int:
    return await unbounded(number)


async def _rows(engine: Engine) -> list[Process]:
    return await engine.store.search(Search(limit=MANY + 1))


async def test_while_nothing_succeeds_retries_wait_and_no_process_fails(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "RETRY_LOOK_SECONDS", 3600.0)
    engine, store = await opened(work=True, workflows=[asking])
    with caplog.at_level(logging.WARNING, "perdure"):
        handles = await engine.start_many(asking, [(number,) for number in range(MANY)])
        await until(lambda: engine.metrics()["retries_put_off"] == MANY)
        async with asyncio.timeout(LIMIT):
            while any(row.owner for row in await _rows(engine)):
                pass
    assert calls.total() == MANY + BUDGET
    now = await store.now()
    for row in await _rows(engine):
        assert row.status == "running"
        assert row.due_at is not None and row.due_at > now, "whoever claims it then looks again"
        assert row.awaiting == "step patient"
    assert [record.message for record in caplog.records if "budget" in record.message] == [
        "<step patient> fails much more often than it succeeds: its budget of 3 retries is spent, and further ones "
        "wait until it succeeds; check what it depends on (Retry(budget=…) sets another size)"
    ]
    assert len(handles) == MANY


async def test_when_the_dependency_is_back_each_success_pays_for_a_retry(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "RETRY_LOOK_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=[asking])
    handles = await engine.start_many(asking, [(number,) for number in range(MANY)])
    await until(lambda: engine.metrics()["retries_put_off"] >= MANY)
    assert calls.total() == MANY + BUDGET
    down.clear()
    with caplog.at_level(logging.INFO, "perdure"):
        for number in range(MANY, MANY + 2):
            handles.append(await engine.start(asking, number))  # a first attempt asks for no budget
            assert await handles[-1].result(LIMIT) == number
        assert [await handle.result(LIMIT) for handle in handles] == list(range(MANY + 2))
    assert calls.total() == MANY + BUDGET + MANY + 2
    assert "<step patient> succeeds again: its retries no longer wait" in caplog.messages


async def test_the_total_of_a_policy_ends_the_wait_with_a_last_attempt(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[in_a_hurry])
    handles = await engine.start_many(in_a_hurry, [(number,) for number in range(MANY)])
    for handle in handles:
        with pytest.raises(ProcessFailed, match="nobody answers"):
            await handle.result(LIMIT)
    assert MANY + BUDGET <= calls.total() <= 2 * MANY + BUDGET
    assert min(calls[number] for number in range(MANY)) == 2


async def test_without_a_budget_every_attempt_is_made_at_its_time(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[stubborn])
    handles = await engine.start_many(stubborn, [(number,) for number in range(MANY)])
    for handle in handles:
        with pytest.raises(ProcessFailed):
            await handle.result(LIMIT)
    assert calls.total() == 9 * MANY
    assert engine.metrics()["retries_put_off"] == 0


def test_a_spent_budget_is_whole_again_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RETRY_BUDGET_SECONDS", 20.0)
    budget = Budget(10, now=100.0)
    assert [budget.spend(100.0) for _ in range(11)] == [True] * 10 + [False]
    assert not budget.spend(101.0)
    assert budget.spend(102.0)
    budget.earn()
    assert budget.spend(102.0)
    assert not budget.spend(102.0)
    assert sum(budget.spend(1000.0) for _ in range(20)) == 10, "no more is put by than it holds"
