"""The retry of a whole workflow, on both stores: it begins again by itself, and callers hear of the last attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.cli import event_text
from perdure.client.handle import Handle
from perdure.clock import SECOND
from perdure.engine import Engine
from perdure.errors import DefinitionError, Permanent, ProcessCancelled, ProcessFailed
from perdure.kernel import soundness
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row

done: list[str] = []
bad: list[str] = []
AT_ONCE = Retry(attempts=3, first=0, jitter=0)
LATER = Retry(attempts=3, first=3600, cap=3600, jitter=0)
LATER_BY_ERROR = Retry(first=3600, cap=3600, jitter=0)
SOON = Retry(attempts=3, first=0.2, jitter=0)
RETRIED, FIRED = EventType.RUN_RETRIED, EventType.TIMER_FIRED


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    bad.clear()


class Closed(Exception):
    """The bank is closed."""


@step(retry=Retry.NONE)
async def take_back(what: str) -> None:
    done.append(f"take back {what}")


@step(retry=Retry.NONE, undo=take_back)
async def reserve(what: str) -> str:
    done.append(what)
    return what


@step(retry=Retry.NONE, raises=Closed)
async def charge(what: str) -> str:
    done.append(attempt().idempotency_key.partition("/")[2])
    if bad:
        raise Permanent("no such account") if bad.pop() == "hopeless" else Closed("the bank is closed")
    return what


@workflow(retry=AT_ONCE)
async def order(what: str) -> str:
    return await charge(what)


@workflow(retry=LATER)
async def patient(what: str) -> str:
    return await charge(what)


@workflow(retry=SOON)
async def soon(what: str) -> list[str]:
    said = await receive("word", str)
    return [await charge(what), said]


async def kinds(engine: Engine, id: str, run: int) -> list[str]:
    return [event.type.name for event in await engine.process(id).history(run)]


async def sound(engine: Engine, handle: Handle[Any]) -> None:
    row = await engine.row(handle.id)
    events = await engine.store.history(row.id, row.run)
    messages = await engine.store.messages([(row.id, 0)])
    assert soundness.unsound(row, events, messages, await engine.store.now()) == []


async def waits(engine: Engine, handle: Handle[Any], run: int = 2) -> Any:
    """The row, once an attempt has failed and the next one waits."""
    return await until_row(engine, handle.id, lambda row: row.run == run and row.owner is None)


async def test_it_begins_again_and_whoever_waits_gets_the_result_of_the_last_attempt(opened: Open) -> None:
    bad.extend(["closed", "closed"])
    engine, _ = await opened(work=True, workflows=[order])
    handle = await engine.start(order.options(key="A-17", attributes={"shop": 7}), "book")
    assert await handle.result(LIMIT) == "book"
    row = await engine.row(handle.id)
    assert (row.run, row.key, row.attributes, row.error) == (3, "A-17", b'{"shop":7}', None)
    assert done == ["1/charge:1", "2/charge:1", "3/charge:1"]
    assert await kinds(engine, handle.id, 1) == ["STEP_FAILED"]
    assert await kinds(engine, handle.id, 2) == ["RUN_OPENED", "RUN_RETRIED", "STEP_FAILED"]
    assert await kinds(engine, handle.id, 3) == ["RUN_OPENED", "RUN_RETRIED", "STEP_COMPLETED", "COMPLETED"]
    told = [event_text.detail(event, {}) for event in (await engine.process(handle.id).history(3))[:2]]
    assert told[0] == "tried again after run 2 has failed"
    assert told[1].startswith("attempt 2: ") and "the bank is closed" in told[1]
    await sound(engine, handle)


async def test_when_all_attempts_are_used_up_it_has_failed(opened: Open) -> None:
    bad.extend(["closed"] * 9)
    engine, _ = await opened(work=True, workflows=[order])
    handle = await engine.start(order, "book")
    with pytest.raises(ProcessFailed, match="the bank is closed"):
        await handle.result(LIMIT)
    assert len(done) == 3
    last = (await engine.process(handle.id).history())[-1]
    assert event_text.detail(last, {}).startswith("after 3 attempts: ")
    await sound(engine, handle)


async def test_it_waits_for_its_time_and_people_see_why(opened: Open) -> None:
    bad.append("closed")
    engine, _ = await opened(work=True, workflows=[patient])
    handle = await engine.start(patient, "book")
    row = await waits(engine, handle)
    assert 3590 * SECOND < row.due_at - row.changed_at <= 3600 * SECOND
    view = await handle.status()
    assert (view.status, view.mover, view.waiting) == (
        Status.RUNNING,
        "timer",
        "it waits for the time of its next attempt",
    )
    await sound(engine, handle)


@pytest.mark.parametrize("by_step", [False, True], ids=["the workflow's error", "a step's error"])
async def test_the_wait_after_an_error_is_that_of_its_class(opened: Open, by_step: bool) -> None:
    @workflow(retry=Retry(attempts=3, first=0, jitter=0, waits={Closed: LATER_BY_ERROR, LookupError: 7200}))
    async def choosy() -> None:
        if by_step:
            bad.append("closed")
            await charge("book")
        raise Closed("the bank is closed")

    engine, _ = await opened(work=True, workflows=[choosy])
    handle = await engine.start(choosy)
    row = await waits(engine, handle)
    assert 3590 * SECOND < row.due_at - row.changed_at <= 3600 * SECOND


async def test_a_signal_in_the_wait_does_not_begin_the_attempt_and_is_received_by_it(opened: Open) -> None:
    bad.append("closed")
    engine, _ = await opened(work=True, workflows=[soon])
    handle = await engine.start(soon, "book")
    await handle.signal("word", "first")
    row = await waits(engine, handle)
    await handle.signal("word", "second")
    # The letter of the first attempt comes first: it was put back.
    assert await handle.result(LIMIT) == ["book", "first"]
    fired = next(event for event in await engine.process(handle.id).history(2) if event.type is FIRED)
    assert fired.at >= row.due_at
    await sound(engine, handle)


async def test_another_worker_goes_on_with_the_wait_and_the_attempt(opened: Open) -> None:
    bad.append("closed")
    engine, store = await opened(work=True, workflows=[soon])
    handle = await engine.start(soon, "book")
    await handle.signal("word", "go")
    row = await waits(engine, handle)
    await handle.signal("beside", "so that the wait is replayed")
    await lose(engine, store)
    other, _ = await opened(work=True, workflows=[soon])
    assert await other.process(handle.id).result(timeout=LIMIT) == ["book", "go"]
    history = await other.process(handle.id).history(2)
    assert [event.type for event in history[:2]] == [EventType.RUN_OPENED, RETRIED]
    assert next(event.at for event in history if event.type is FIRED) >= row.due_at


@pytest.mark.parametrize("how", ["hopeless", "never", "code"])
async def test_an_error_that_no_attempt_can_cure_ends_it_at_once(opened: Open, how: str) -> None:
    @workflow(retry=Retry(attempts=3, first=0, never=Closed))
    async def careful() -> None:
        if how == "code":
            raise Permanent("no such shop")
        await charge("book")

    bad.extend([how] * 3)
    engine, _ = await opened(work=True, workflows=[careful])
    with pytest.raises(ProcessFailed):
        await (await engine.start(careful)).result(LIMIT)
    assert len(done) == (0 if how == "code" else 1)


async def test_errors_in_a_group_count_together(opened: Open) -> None:
    @workflow(retry=AT_ONCE)
    async def both() -> str:
        async with asyncio.TaskGroup() as group:
            one, two = group.create_task(charge("a")), group.create_task(charge("b"))  # type: ignore[arg-type]
        return one.result() + two.result()

    bad.extend(["closed", "hopeless"])  # the last is raised first
    engine, _ = await opened(work=True, workflows=[both])
    with pytest.raises(ProcessFailed, match="no such account"):
        await (await engine.start(both)).result(LIMIT)
    bad[:] = ["closed"]
    assert await (await engine.start(both)).result(LIMIT) == "ab"


async def test_what_was_done_is_undone_before_the_next_attempt(opened: Open) -> None:
    @workflow(retry=AT_ONCE)
    async def trip() -> str:
        await reserve("seat")
        return await charge("trip")

    bad.append("closed")
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await engine.start(trip)
    assert await handle.result(LIMIT) == "trip"
    assert done == ["seat", "1/charge:1", "take back seat", "seat", "2/charge:1"]
    await sound(engine, handle)


async def test_who_is_asked_to_end_is_not_tried_again(opened: Open) -> None:
    @workflow(retry=AT_ONCE)
    async def stubborn() -> None:
        try:
            await receive("never")
        except asyncio.CancelledError:
            raise Closed("in the middle of cleaning up") from None

    bad.append("closed")
    engine, _ = await opened(work=True, workflows=[stubborn, patient])
    handle = await engine.start(stubborn)
    await handle.cancel(why="no more")
    with pytest.raises(ProcessFailed, match="cleaning up"):
        await handle.result(LIMIT)
    assert (await engine.row(handle.id)).run == 1
    waiting = await engine.start(patient, "book")
    await waits(engine, waiting)
    await waiting.cancel(why="no more")
    with pytest.raises(ProcessCancelled):
        await waiting.result(LIMIT)
    assert len(done) == 1


async def test_the_deadline_counts_over_all_attempts(opened: Open) -> None:
    bad.append("closed")
    engine, _ = await opened(work=True, workflows=[patient])
    handle = await engine.start(patient.options(deadline=1800), "book")
    with pytest.raises(ProcessFailed, match="the bank is closed"):
        await handle.result(LIMIT)  # the next attempt would begin behind its deadline
    assert (await engine.row(handle.id)).run == 1


async def test_a_parent_hears_of_the_last_attempt_and_children_end_with_theirs(opened: Open) -> None:
    @workflow
    async def sleeper() -> None:
        await receive("never")

    @workflow(retry=AT_ONCE)
    async def middle() -> str:
        lasting = sleeper.child()
        answer = await charge("book")
        lasting.cancel()
        return answer

    @workflow
    async def outer() -> str:
        return await middle.child()

    bad.extend(["closed", "closed"])
    engine, _ = await opened(work=True, workflows=[sleeper, middle, outer])
    handle = await engine.start(outer)
    assert await handle.result(LIMIT) == "book"
    assert await kinds(engine, handle.id, 1) == ["CHILD_STARTED", "STEP_COMPLETED", "COMPLETED"]
    async with asyncio.timeout(LIMIT):
        while (await engine.count())["sleeper"] != {"cancelled": 3}:
            await asyncio.sleep(0)


async def test_a_round_is_tried_again_with_its_own_arguments_and_counts_its_own_attempts(opened: Open) -> None:
    @workflow(retry=Retry(attempts=2, first=0))
    async def rounds(left: int) -> int:
        if left in (1, 2):
            bad.append(f"closed {left}") if f"closed {left}" not in done else None
            done.append(f"closed {left}")
        await charge(str(left))
        if left:
            continue_as_new(left - 1)
        return left

    engine, _ = await opened(work=True, workflows=[rounds])
    handle = await engine.start(rounds, 2)
    assert await handle.result(LIMIT) == 0
    assert (await engine.row(handle.id)).run == 5  # 2, 2 again, 1, 1 again, 0
    await sound(engine, handle)


async def test_a_person_retries_the_last_attempt_and_restarts_with_all_of_them(opened: Open) -> None:
    bad.extend(["closed"] * 4)
    engine, _ = await opened(work=True, workflows=[soon])
    handle = await engine.start(soon, "book")
    await handle.signal("word", "go")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await engine.process(handle.id).retry(why="it is open")
    with pytest.raises(ProcessFailed):
        await engine.process(handle.id).result(timeout=LIMIT)
    assert len(done) == 4  # the last attempt went on, and no new one followed
    assert "RUN_RETRIED" in await kinds(engine, handle.id, 4)
    await sound(engine, handle)
    bad.append("closed")
    await engine.process(handle.id).restart(why="from the beginning")
    assert await engine.process(handle.id).result(timeout=LIMIT) == ["book", "go"]
    assert (await engine.row(handle.id)).run == 6
    await sound(engine, handle)


async def test_a_fork_of_one_that_waits_waits_too_and_a_restart_begins_at_once(opened: Open) -> None:
    bad.append("closed")
    engine, _ = await opened(work=True, workflows=[patient])
    handle = await engine.start(patient, "book")
    row = await waits(engine, handle)
    fork = await handle.fork()
    twin = await until_row(engine, fork.id, lambda twin: twin.owner is None and twin.awaiting is not None)
    assert (twin.due_at, twin.awaiting) == (row.due_at, row.awaiting)
    await sound(engine, fork)
    await handle.restart(why="now")
    assert await handle.result(LIMIT) == "book"


async def test_the_first_turn_may_fail_and_the_failure_is_logged_and_counted(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    failures = ["once"]

    @workflow(retry=AT_ONCE)
    async def quick() -> str:
        if failures:
            raise Closed(failures.pop())
        return "done"

    engine, _ = await opened(work=True, workflows=[quick])
    assert await (await engine.start(quick)).result(LIMIT) == "done"
    assert engine.metrics()["workflow_retries"] == 1
    assert any("has failed at attempt 1; the next one begins in 0.0 s" in text for text in caplog.messages)
    await until(lambda: engine.worker is not None and not engine.worker.scheduler.instances)


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        (3, "Write retry=Retry"),
        (Retry(then=["break"]), r"Retry\(then=...\), which only a step can have"),
        (Retry(timeout_factor=2), "which only a step can have"),
        (Retry(budget=None), "which only a step can have"),
    ],
)
def test_a_retry_that_only_a_step_can_have_is_refused_where_it_is_defined(retry: Any, words: str) -> None:
    async def flow() -> None:
        pass

    with pytest.raises(DefinitionError, match=words):
        workflow(retry=retry)(flow)
