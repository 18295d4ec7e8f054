"""A start that others may make too, under the same id: only the worker whose row is new runs the process."""

from __future__ import annotations

import asyncio

import pytest

from perdure import step, workflow
from perdure.engine import Engine
from perdure.kernel.commit import StartVerdict
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from tests.runtime.conftest import Open, until, until_row

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nobody_has_run() -> None:
    ran.clear()


@step
async def noted(name: str) -> str:
    ran.append(name)
    return name


@workflow
async def of_a_key(name: str) -> str:
    return await noted(name)


@workflow
async def at_once(name: str) -> str:
    ran.append(name)
    return name


def made(engine: Engine, kind: str = of_a_key.name) -> Process:
    return Process(engine.machine.new_id(), kind, "k", b'["x"]', code="1")


async def test_a_process_that_another_worker_has_ended_is_not_run_once_more(opened: Open) -> None:
    (first, _), (second, _) = [await opened(work=True, workflows=[of_a_key]) for _ in range(2)]
    process = made(first)
    for engine in (first, second):
        answer = engine.local.start_repeated(process, of_a_key)
        assert answer is not None
        assert ((await answer).verdict, (await answer).again) == (StartVerdict.CREATED, engine is second)
        row = await until_row(first, id_text(process.id), lambda row: row.final)
        assert row.status is Status.COMPLETED
        assert not second.worker.scheduler.eager.knows(process.id)
    assert await (await second.start(of_a_key, "y")).result() == "y"  # what it was to run by then, it has run
    assert ran == ["x", "y"]


async def test_a_process_that_ends_in_its_first_turn_has_the_result_of_the_first_start(opened: Open) -> None:
    (first, _), (second, _) = [await opened(work=True, workflows=[at_once]) for _ in range(2)]
    process = made(first, at_once.name)
    for engine in (first, second):
        answer = engine.local.start_repeated(process, at_once)
        assert answer is not None and (await answer).again is (engine is second)
    assert await second.process(id_text(process.id)).result() == "x"
    counters = second.telemetry.counters
    assert (counters["starts"], counters["starts_existing"]) == (0, 1)


async def test_a_process_that_this_worker_holds_is_not_started_beside_itself(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[of_a_key])
    process = made(engine)
    answers = [engine.local.start_repeated(process, of_a_key) for _ in range(2)]
    assert answers[0] is not None and answers[1] is None
    await answers[0]
    await until_row(engine, id_text(process.id), lambda row: row.final)
    assert ran == ["x"]
    assert await asyncio.wait_for(engine.process(id_text(process.id)).result(), 10) == "x"


async def test_a_start_after_one_that_an_ended_incarnation_made_is_held(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[of_a_key])
    worker = engine.worker
    assert worker is not None
    ended, renewed = worker.incarnation.id, asyncio.Event()

    async def visit(name: str, argument: object) -> None:
        if name == "start":
            await renewed.wait()

    store.before = visit
    process = made(engine)
    first = engine.local.start_repeated(process, of_a_key)
    await store.store.retire(ended, None, died=False)
    worker.retired(ended)
    await until(lambda: worker.incarnation.id != ended)
    renewed.set()
    assert first is not None and (await first).verdict is StartVerdict.REFUSED
    second = engine.local.start_repeated(process, of_a_key)
    assert second is not None and (await second).verdict is StartVerdict.CREATED
    row = await until_row(engine, id_text(process.id), lambda row: row.final)
    assert (row.token, ran) == (1, ["x"]), "nobody had to claim it"
