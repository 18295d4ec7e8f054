"""Continuing as new on both stores: one process, many runs, each with arguments and a history of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import new_uuid, receive, set_state, workflow
from perdure.cli import event_text
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import InvalidInput, ProcessCancelled, ProcessFailed, WorkflowMisuse
from perdure.kernel import soundness
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.turns.patches import patched
from perdure.turns.renewal import continue_as_new
from perdure.turns.saga import saga
from tests.runtime.conftest import LIMIT, Open, until, until_row

keys: list[str] = []
done: list[str] = []
failing: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for memory in (keys, done, failing):
        memory.clear()


@step(retry=Retry.NONE)
async def take_back(what: str) -> None:
    done.append(f"take back {what}")


@step(retry=Retry.NONE, undo=take_back)
async def reserve(what: str) -> str:
    done.append(what)
    return what


@step(retry=Retry.NONE)
async def charge(what: str) -> str:
    keys.append(attempt().idempotency_key)
    done.append(what)
    if what in failing:
        failing.remove(what)
        raise ConnectionError("the bank is closed")
    return what


async def types(engine: Engine, handle: Handle[Any], run: int) -> list[str]:
    return [event.type.name for event in await engine.process(handle.id).history(run)]


async def sound(engine: Engine, handle: Handle[Any]) -> None:
    row = await engine.row(handle.id)
    events = await engine.store.history(row.id, row.run)
    messages = await engine.store.messages([(row.id, 0)])
    assert soundness.unsound(row, events, messages, await engine.store.now()) == []


@workflow
async def months(left: int, total: int = 0) -> int:
    set_state(left)
    await charge(f"month {left}")
    if left > 1:
        continue_as_new(left - 1, total=total + 1)
    return total + 1


async def test_a_process_goes_on_in_new_runs_and_whoever_waits_gets_the_result_of_the_last(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[months])
    handle = await engine.start(months.options(key="rent", attributes={"flat": 7}, deadline=3600), 3)
    assert await handle.result(LIMIT) == 3
    row = await engine.row(handle.id)
    assert (row.run, row.key, row.attributes, row.deadline is not None) == (3, "rent", b'{"flat":7}', True)
    assert done == ["month 3", "month 2", "month 1"]
    first = ["STEP_COMPLETED"]
    assert await types(engine, handle, 1) == first
    assert await types(engine, handle, 2) == ["RUN_OPENED", *first]
    assert await types(engine, handle, 3) == ["RUN_OPENED", *first, "COMPLETED"]
    told = event_text.detail((await engine.process(handle.id).history(2))[0], {})
    assert told == "continued as new from run 1, with [2,1]"
    await sound(engine, handle)


async def test_rule_21_after_continuing_as_new_a_step_has_a_fresh_key_and_after_a_retry_its_own(opened: Open) -> None:
    failing.append("month 1")
    engine, _ = await opened(work=True, workflows=[months])
    handle = await engine.start(months, 2)
    with pytest.raises(ProcessFailed, match="the bank is closed"):
        await handle.result(LIMIT)
    await engine.process(handle.id).retry(why="it is open")
    assert await engine.process(handle.id).result(timeout=LIMIT) == 2
    assert keys == [f"{handle.id}/{run}/charge:1" for run in (1, 2, 2)]
    assert (await engine.row(handle.id)).run == 3
    await sound(engine, handle)


async def test_it_may_be_the_first_thing_that_a_workflow_does(opened: Open) -> None:
    @workflow
    async def countdown(left: int) -> int:
        if left:
            continue_as_new(left - 1)
        return left

    engine, _ = await opened(work=True, workflows=[countdown])
    handle = await engine.start(countdown, 5)
    assert await handle.result(LIMIT) == 0
    assert (await engine.row(handle.id)).run == 6


async def test_hundreds_of_runs_leave_nothing_in_hand(opened: Open) -> None:
    @workflow
    async def countdown(left: int) -> int:
        if left:
            continue_as_new(left - 1)
        return left

    engine, _ = await opened(work=True, workflows=[countdown])
    handle = await engine.start(countdown, 299)
    assert await handle.result(3 * LIMIT) == 0
    row = await engine.row(handle.id)
    assert (row.run, row.events) == (300, 2)
    assert engine.worker is not None
    await until(lambda: not engine.worker.scheduler.instances)  # it may be told of its own commit after everybody else


async def test_signals_that_were_heard_and_not_received_are_heard_first_by_the_next_run(opened: Open) -> None:
    @workflow
    async def batches(heard: list[int]) -> list[int]:
        await receive("go")
        heard = [*heard, await receive("number", int)]
        if len(heard) < 4:
            continue_as_new(heard)
        return heard

    engine, _ = await opened(work=True, workflows=[batches])
    handle = await engine.start(batches, [])
    for number in range(4):
        await handle.signal("number", number)
    await until_row(engine, handle.id, lambda row: row.seen == 4)
    for go in range(4):
        await handle.signal("go")
        if go < 3:
            await until_row(engine, handle.id, lambda row, run=go + 2: row.run == run and row.owner is None)  # type: ignore[misc]
            await sound(engine, handle)
    assert await handle.result(LIMIT) == [0, 1, 2, 3]
    assert await types(engine, handle, 2) == ["RUN_OPENED", *["MESSAGE_RECEIVED"] * 2]
    await sound(engine, handle)


async def test_a_failed_run_with_old_signals_is_retried_with_them_and_hears_no_older_ones(opened: Open) -> None:
    failing.append("third")

    @workflow
    async def batches(heard: list[str]) -> list[str]:
        await receive("go")
        heard = [*heard, await receive("name", str)]
        if len(heard) < 3:
            continue_as_new(heard)
        await charge(heard[-1])
        return heard

    engine, _ = await opened(work=True, workflows=[batches])
    handle = await engine.start(batches, [])
    for name in ("first", "second", "third"):
        await handle.signal("name", name)
    for _ in range(3):
        await handle.signal("go")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await engine.process(handle.id).retry(why="it is open")
    assert await engine.process(handle.id).result(timeout=LIMIT) == ["first", "second", "third"]
    await sound(engine, handle)


async def test_a_wish_to_cancel_that_comes_too_late_for_a_run_is_heard_by_the_next(opened: Open) -> None:
    @workflow
    async def ends_slowly(again: bool) -> None:
        async def lingers() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await receive("end")

        lingering = asyncio.ensure_future(lingers())
        await receive("go")
        assert not lingering.done()
        if again:
            continue_as_new(False)
        await receive("never")

    engine, _ = await opened(work=True, workflows=[ends_slowly])
    handle = await engine.start(ends_slowly, True)
    await handle.signal("go")
    await until_row(engine, handle.id, lambda row: row.seen == 1 and row.owner is None)
    await handle.cancel(why="no more")
    await until_row(engine, handle.id, lambda row: row.seen == 2 and row.owner is None)
    await handle.signal("end")
    await handle.signal("end")
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert (await engine.row(handle.id)).run == 2


async def test_it_leaves_sagas_and_task_groups_and_nothing_is_undone(opened: Open) -> None:
    @workflow
    async def grouped(left: int) -> str:
        async with saga(), asyncio.TaskGroup() as group:
            await group.create_task(reserve("a"))  # type: ignore[arg-type]
            if left:
                continue_as_new(left - 1)
        return "done"

    engine, _ = await opened(work=True, workflows=[grouped])
    handle = await engine.start(grouped, 1)
    assert await handle.result(LIMIT) == "done"
    assert done == ["a", "a"]


async def test_what_still_runs_is_cancelled_as_at_a_return(opened: Open) -> None:
    stopped = asyncio.Event()

    @step
    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    @workflow
    async def sleeper() -> None:
        await receive("never")

    @workflow
    async def parent(again: bool) -> str:
        if again:
            await work()
            continue_as_new(False)
        return "second"

    async def work() -> None:
        lasting = lasts()
        sleeping = asyncio.ensure_future(asyncio.sleep(3600))
        bound, free = sleeper.child(), sleeper.child.options(on_parent_end="abandon")()
        await receive("go")
        assert not any(one.done() for one in (lasting, bound, free, sleeping))  # type: ignore[attr-defined]

    engine, _ = await opened(work=True, workflows=[parent, sleeper])
    handle = await engine.start(parent, True)
    await until_row(engine, handle.id, lambda row: row.events >= 2)
    await handle.signal("go")
    assert await handle.result(LIMIT) == "second"
    await stopped.wait()
    async with asyncio.timeout(LIMIT):
        while (await engine.count())["sleeper"] != {"cancelled": 1, "running": 1}:
            await asyncio.sleep(0)


async def test_each_run_has_chance_and_patches_of_its_own(opened: Open) -> None:
    @workflow
    async def chances(seen: list[str]) -> list[str]:
        seen = [*seen, f"{new_uuid()} {patched('later')}"]
        await receive("go")
        if len(seen) < 3:
            continue_as_new(seen)
        return seen

    engine, _ = await opened(work=True, workflows=[chances])
    handle = await engine.start(chances, [])
    for run in (1, 2, 3):
        await until_row(engine, handle.id, lambda row, run=run: row.run == run and row.owner is None)  # type: ignore[misc]
        await engine.close()
        engine, _ = await opened(work=True, workflows=[chances])
        await engine.process(handle.id).signal("go")
    seen = await engine.process(handle.id).result(timeout=LIMIT)
    assert len(set(seen)) == 3 and all(one.endswith("True") for one in seen)


async def test_arguments_that_do_not_fit_are_refused_where_it_is_called(opened: Open) -> None:
    @workflow
    async def careful(number: int) -> str:
        try:
            continue_as_new("many", "numbers")
        except InvalidInput:
            return "refused"

    engine, _ = await opened(work=True, workflows=[careful])
    assert await (await engine.start(careful, 1)).result(LIMIT) == "refused"
    with pytest.raises(WorkflowMisuse, match="continue_as_new\\(\\) belongs in a workflow"):
        continue_as_new(1)


async def test_old_runs_are_removed_with_their_process(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[months])
    handle = await engine.start(months, 3)
    await handle.result(LIMIT)
    await until_row(engine, handle.id, lambda row: row.status is Status.COMPLETED)
    pruned = await engine.store.prune(-1_000_000, 0, 10)
    assert pruned.processes == 1
    for run in (1, 2, 3):
        assert await engine.store.history(id_bytes(handle.id), run) == []


async def test_a_restart_begins_the_present_round_again_with_its_arguments_and_signals(opened: Open) -> None:
    @workflow
    async def rounds(number: int) -> list[Any]:
        await receive("go")
        if number < 2:
            continue_as_new(number + 1)
        return [number, await receive("name", str), str(new_uuid())]

    engine, _ = await opened(work=True, workflows=[rounds])
    handle = await engine.start(rounds, 1)
    await handle.signal("name", "Ann")
    await handle.signal("go")
    await until_row(engine, handle.id, lambda row: row.run == 2 and row.owner is None and row.awaiting is not None)
    await engine.process(handle.id).restart(why="once more")
    await until_row(engine, handle.id, lambda row: row.run == 3 and row.owner is None and row.awaiting is not None)
    await sound(engine, handle)
    await handle.signal("go")
    assert (await handle.result(LIMIT))[:2] == [2, "Ann"]
    await sound(engine, handle)
