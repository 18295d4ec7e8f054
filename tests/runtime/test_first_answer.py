"""Whose answer counts: that of the attempt at work, or the first one of any attempt, be it given up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import DefinitionError
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until, until_row

begun: list[int] = []
gates: list[threading.Event] = []


@pytest.fixture(autouse=True)
def _two_attempts() -> Iterator[None]:
    begun.clear()
    gates[:] = [threading.Event(), threading.Event()]
    yield
    for gate in gates:
        gate.set()


@step(queue="bank", retry=Retry(attempts=2, first=0.001), timeout=30)
def ask_the_bank() -> str:
    number = len(begun)
    begun.append(number)
    gates[number].wait(LIMIT)
    return f"answer {number}"


@workflow
async def asks_for_the_first() -> str:
    return await ask_the_bank.options(accept="first")()


@workflow
async def asks_for_the_current() -> str:
    return await ask_the_bank()


@workflow
async def is_impatient() -> str:
    return await ask_the_bank.options(accept="first", timeout=0.2, retry=Retry(attempts=50, first=0.001))()


async def asked_twice(opened: Open, flow: Workflow[[], str]) -> tuple[Engine, Engine, Handle[str]]:
    """A client, a worker that was taken for dead in its attempt, and a process whose second attempt is another's."""
    client, _ = await opened(work=True, workflows=[flow], queues=[])
    old, _ = await opened(work=True, workflows=[], queues=["bank"])
    handle = await client.start(flow)
    await until(lambda: len(begun) == 1)
    await opened(work=True, workflows=[], queues=["bank"])
    assert old.worker is not None
    await client.store.retire(old.worker.incarnation.id, None, False)
    await until(lambda: len(begun) == 2)
    return client, old, handle


async def impatient_twice(opened: Open) -> tuple[Engine, Handle[str]]:
    """A worker, and a process whose first attempt was too slow and has not ended."""
    engine, _ = await opened(work=True, workflows=[is_impatient], queues=["bank"])
    handle = await engine.start(is_impatient)
    await until(lambda: len(begun) == 2)
    return engine, handle


async def test_the_first_answer_counts_although_another_worker_has_the_task(opened: Open) -> None:
    client, _, handle = await asked_twice(opened, asks_for_the_first)
    gates[0].set()
    assert await handle.result(LIMIT) == "answer 0"
    [task] = await client.store.search(Search(kind="@bank"))
    assert (task.status, task.result) == (Status.COMPLETED, b'"answer 0"')


async def test_without_it_only_the_answer_of_the_attempt_at_work_counts(opened: Open) -> None:
    _, old, handle = await asked_twice(opened, asks_for_the_current)
    gates[0].set()
    await until(lambda: old.metrics()["late_results"] + old.metrics()["commits_refused"])
    gates[1].set()
    assert await handle.result(LIMIT) == "answer 1"


async def test_the_first_answer_of_an_attempt_that_was_too_slow_counts_too(opened: Open) -> None:
    _, handle = await impatient_twice(opened)
    gates[0].set()
    assert await handle.result(LIMIT) == "answer 0"


async def test_a_late_answer_after_the_end_changes_nothing(opened: Open) -> None:
    engine, handle = await impatient_twice(opened)
    gates[1].set()
    assert await handle.result(LIMIT) == "answer 1"
    [task] = await engine.store.search(Search(kind="@bank"))
    gates[0].set()
    after = await until_row(engine, handle.id, lambda row: engine.metrics()["late_results"])
    assert after.result == b'"answer 1"'
    assert (await engine.row(task.id)).result == b'"answer 1"'


def test_what_makes_no_sense_is_refused_when_it_is_set() -> None:
    with pytest.raises(DefinitionError, match="'current' or 'first'"):
        ask_the_bank.options(accept="last")  # type: ignore[arg-type]
