"""Steps that run at most once: whatever becomes of their worker, nobody runs them a second time unasked."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from errno import EMFILE
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.errors import ProcessFailed, StepError, StepOutcomeUnknown
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, lose, until

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
doors: dict[str, threading.Event] = defaultdict(threading.Event)
SOON = Retry(attempts=3, first=0.001, jitter=0.0)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()
    doors.clear()


async def names(engine: Engine, id: str, run: int | None = None) -> list[str]:
    return [event.type.name for event in await engine.process(id).history(run=run) if event.type is not REVIVED]


REVIVED, BEGUN = EventType.REVIVED, EventType.ATTEMPT_BEGUN


# -- the beginning is written first ------------------------------------------------------------------------------------


@step(at_most_once=True)
async def wire(cents: int) -> str:
    done.append(cents)
    here = attempt()
    seen = [event.type for event in await here.engine.process(here.process).history()]
    return seen[-1].name


@workflow
async def wiring() -> list[str]:
    return [await wire(1), await wire(2)]


async def test_the_beginning_is_in_the_store_before_the_function_is_called(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[wiring])
    handle = await engine.start(wiring)
    assert await handle.result(LIMIT) == ["ATTEMPT_BEGUN", "ATTEMPT_BEGUN"]
    assert done == [1, 2]
    assert await names(engine, handle.id) == [
        "ATTEMPT_BEGUN", "STEP_COMPLETED", "ATTEMPT_BEGUN", "STEP_COMPLETED", "COMPLETED",
    ]  # fmt: skip


@step(at_most_once=True)
async def refused() -> None:
    done.append("refused")
    raise ConnectionError("the bank does not answer")


@workflow
async def refusal() -> str:
    try:
        await refused()
    except StepError as error:
        return f"{type(error).__name__}: {error.type}"
    return "done"


async def test_an_error_that_the_step_reports_is_the_end_of_it_and_an_ordinary_one(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[refusal])
    assert await (await engine.start(refusal)).result(LIMIT) == "StepError: ConnectionError"
    assert done == ["refused"]


@step(at_most_once=True)
def short_of_descriptors() -> None:
    done.append("opened")
    raise OSError(EMFILE, "too many open files")


@workflow
async def shortage() -> str:
    try:
        await short_of_descriptors()
    except StepError as error:
        return error.type
    return "done"


async def test_a_shortage_that_its_function_has_met_is_an_error_of_the_step(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[shortage])
    assert await (await engine.start(shortage)).result(LIMIT) == "OSError"
    assert done == ["opened"]


# -- a worker is lost in the middle ------------------------------------------------------------------------------------


@step(at_most_once=True)
async def pay(name: str) -> str:
    done.append((name, attempt().idempotency_key))
    await gates[name].wait()
    return f"{name} paid"


@step
async def steady(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def caught(name: str) -> str:
    try:
        return await pay(name)
    except StepOutcomeUnknown as error:
        return f"{error.step}, {error.attempts}, {error.type}"


@workflow
async def uncaught(name: str) -> str:
    return await pay(name)


@workflow
async def beside(name: str) -> list[str]:
    answers = await asyncio.gather(pay(name), steady("ordinary"), return_exceptions=True)
    return [one if isinstance(one, str) else type(one).__name__ for one in answers]


async def test_after_the_loss_of_its_worker_nobody_runs_it_and_the_workflow_may_catch_that(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[caught])
    handle = await first.start(caught, "rent")
    await until(lambda: done)
    await lose(first, store)
    gates["rent"].set()
    second, _ = await opened(work=True, workflows=[caught])
    assert await second.process(handle.id).result(LIMIT) == "pay, 1, StepOutcomeUnknown"
    assert len(done) == 1
    assert await names(second, handle.id) == ["ATTEMPT_BEGUN", "STEP_FAILED", "COMPLETED"]


async def lost_in_the_middle(opened: Open, flow: Any) -> tuple[Engine, Any]:
    """A process whose worker was lost while ``pay`` ran, and which has failed since."""
    first, store = await opened(work=True, workflows=[flow])
    handle = await first.start(flow, "rent")
    await until(lambda: done)
    await lose(first, store)
    gates["rent"].set()
    second, _ = await opened(work=True, workflows=[flow])
    with pytest.raises(ProcessFailed, match="not known whether it was done") as failed:
        await second.process(handle.id).result(LIMIT)
    assert failed.value.type == "StepOutcomeUnknown"
    return second, second.process(handle.id)


async def test_a_person_who_knows_what_became_of_it_sets_its_result(opened: Open) -> None:
    _, handle = await lost_in_the_middle(opened, uncaught)
    await handle.set_result("pay", "paid, says the bank", who="anna")
    assert await handle.result(LIMIT) == "paid, says the bank"
    assert len(done) == 1


async def test_a_person_who_retries_the_process_has_it_run_once_more_under_its_old_key(opened: Open) -> None:
    _, handle = await lost_in_the_middle(opened, uncaught)
    await handle.retry(who="anna")
    assert await handle.result(LIMIT) == "rent paid"
    assert done == [("rent", f"{handle.id}/1/pay:1")] * 2


async def test_who_is_held_or_loses_only_its_lease_does_not_run_it_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[caught])
    handle = await engine.start(caught, "rent")
    await until(lambda: done)
    await handle.hold(who="anna")
    gates["rent"].set()
    await handle.resume(who="anna")
    assert await handle.result(LIMIT) == "pay, 1, StepOutcomeUnknown"
    assert len(done) == 1


async def test_a_fork_does_not_run_what_is_under_way_in_its_original(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[caught])
    handle = await engine.start(caught, "rent")
    await until(lambda: done)
    fork = await handle.fork()
    assert await fork.result(LIMIT) == "pay, 1, StepOutcomeUnknown"
    gates["rent"].set()
    assert await handle.result(LIMIT) == "rent paid"
    assert len(done) == 1


async def test_steps_beside_it_run_again_as_ever(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[beside])
    handle = await first.start(beside, "rent")
    await until(lambda: len(done) == 2)
    await lose(first, store)
    gates["rent"].set()
    gates["ordinary"].set()
    second, _ = await opened(work=True, workflows=[beside])
    assert await second.process(handle.id).result(LIMIT) == ["StepOutcomeUnknown", "ordinary"]
    assert sorted(one if isinstance(one, str) else one[0] for one in done) == ["ordinary", "ordinary", "rent"]


async def test_a_retry_of_another_step_does_not_run_it_again(opened: Open) -> None:
    """It was under way when the process failed, and had begun after the step from which the process goes on."""
    engine, _ = await opened(work=True, workflows=[after_a_failure])
    handle = await engine.start(after_a_failure)
    await until(lambda: len(done) == 2)
    await handle.signal("it has begun")
    with pytest.raises(ProcessFailed, match="a mistake"):
        await handle.result(LIMIT)
    gates["rent"].set()
    await handle.retry(who="anna")
    assert await handle.result(LIMIT) == "outcome unknown"
    assert [one for one in done if one != "tried"] == [("rent", f"{handle.id}/1/pay:1")]


@step(retry=Retry.NONE)
async def too_early() -> str:
    done.append("tried")
    if done.count("tried") == 1:
        raise ValueError("too early")
    return "in time"


@workflow
async def after_a_failure() -> str:
    try:
        answer = await too_early()
    except StepError:
        answer = ""
    paying = asyncio.ensure_future(pay("rent"))
    await receive("it has begun")
    if not answer:
        raise LookupError("a mistake")
    try:
        return await paying
    except StepOutcomeUnknown:
        return "outcome unknown"


# -- it hangs, or its OS process dies ----------------------------------------------------------------------------------


@step(at_most_once=True, timeout=0.05)
async def hangs() -> None:
    done.append("hung")
    await asyncio.Event().wait()


@step(at_most_once=True, timeout=0.05)
def hangs_in_a_thread() -> None:
    done.append("hung")
    doors["hung"].wait(LIMIT)


@workflow
async def hanging(in_a_thread: bool) -> str:
    try:
        await (hangs_in_a_thread() if in_a_thread else hangs())
    except StepOutcomeUnknown as error:
        return str(error)
    return "done"


@pytest.mark.parametrize("in_a_thread", [False, True])
async def test_at_its_deadline_it_is_not_known_whether_it_was_done(opened: Open, in_a_thread: bool) -> None:
    engine, _ = await opened(work=True, workflows=[hanging])
    said = await (await engine.start(hanging, in_a_thread)).result(LIMIT)
    doors["hung"].set()
    assert "not known whether it was done: the attempt ran over its deadline" in said
    assert done == ["hung"]


def _begins(commits: Any) -> bool:
    return any(event.type is BEGUN for commit in commits for event in commit.events)


# -- a worker stops ----------------------------------------------------------------------------------------------------


async def test_a_worker_that_stops_lets_it_finish_and_leaves_one_that_has_not_begun_to_others(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=[two_payments])
    handle = await first.start(two_payments)
    await until(lambda: done)
    assert first.worker is not None
    stopping = asyncio.ensure_future(first.worker.drain(LIMIT))
    await until(lambda: first.worker is not None and first.worker.scheduler.draining)
    gates["rent"].set()
    gates["power"].set()
    await stopping
    assert [name for name, _ in done] == ["rent"]
    second, _ = await opened(work=True, workflows=[two_payments])
    assert await second.process(handle.id).result(LIMIT) == ["rent paid", "power paid"]
    assert [name for name, _ in done] == ["rent", "power"]


async def test_a_worker_that_stops_while_the_beginning_is_written_still_runs_it(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[two_payments])
    gate = store.before = Gate("commit", _begins)
    gates["rent"].set()
    handle = await engine.start(two_payments)
    await gate.reached.wait()
    assert engine.worker is not None
    stopping = asyncio.ensure_future(engine.worker.drain(LIMIT))
    await until(lambda: engine.worker is not None and engine.worker.scheduler.draining)
    gate.open.set()
    await stopping
    assert [name for name, _ in done] == ["rent"]
    assert await names(engine, handle.id) == ["ATTEMPT_BEGUN", "STEP_COMPLETED"]


@workflow
async def two_payments() -> list[str]:
    return [await pay("rent"), await pay("power")]


async def test_what_the_code_takes_back_while_its_beginning_is_written_does_not_begin(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[impatient])
    gate = store.before = Gate("commit", _begins)
    handle = await engine.start(impatient)
    await gate.reached.wait()
    client, _ = await opened()
    await client.process(handle.id).cancel(who="anna")
    gate.open.set()
    assert await handle.result(LIMIT) == "taken back"
    assert done == []


@workflow
async def impatient() -> str:
    try:
        return await pay("rent")
    except asyncio.CancelledError:
        return "taken back"
