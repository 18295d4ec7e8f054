"""The turn loop: places, asks, timers, messages and the end of a process, one turn at a time."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import process_id, receive, set_state, workflow
from perdure.errors import PayloadError, WorkflowMisuse
from perdure.kernel.message import MessageType
from perdure.turns import loop as room
from perdure.turns.bare_loop import OUTSIDE, TURN_CALLS
from perdure.turns.current import staged
from perdure.turns.loop import TurnLoop, current_turn, turn_running
from tests.authoring.life import BIRTH, ID, Life


@step
async def work(name: str = "") -> str:
    return name


@step(name="other")
async def other_work() -> None: ...


@workflow
async def branching() -> None:
    async def branch(depth: int) -> None:
        await work(f"{depth} a")
        await other_work()
        await work(f"{depth} b")
        if depth:
            await asyncio.gather(branch(depth - 1), asyncio.sleep(1))

    await work("root")
    await asyncio.gather(branch(1), branch(0), work("root again"))


def test_a_place_is_the_branch_and_the_number_of_its_name_there() -> None:
    life = Life(branching)
    places = []
    while not life.loop.finished:
        places += [(name, place) for name, place, _ in life.seen[-1].asked]
        ask = next(iter(life.loop.open.values()), None)
        life.fire() if ask is None else life.turn(life.answer(ask))
    assert places == [
        ("work", "1"),
        ("work", "2"),
        ("work", ".1:1"),
        ("work", ".2:1"),
        ("other", ".1:1"),
        ("other", ".2:1"),
        ("work", ".1:2"),
        ("work", ".2:2"),
        ("work", ".1.1:1"),
        ("other", ".1.1:1"),
        ("work", ".1.1:2"),
    ]


@workflow
async def waiting_for_everything() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(work("a"))
        group.create_task(work("b"))
        group.create_task(receive("approval", timeout=60))
        group.create_task(receive("stop"))


@workflow
async def waiting_for_nothing() -> None:
    await asyncio.Event().wait()


@workflow
async def waiting_for_many() -> None:
    await asyncio.gather(*[receive(f"a signal with a rather long name, number {number}") for number in range(20)])


def test_awaiting_tells_people_what_it_waits_for_in_at_most_200_characters() -> None:
    assert Life(waiting_for_everything).loop.awaiting() == "step work, signal approval, signal stop, timer"
    assert Life(waiting_for_nothing).loop.awaiting() == "nothing that a step, a timer or a signal could bring"
    assert len(Life(waiting_for_many).loop.awaiting()) == 200


@workflow
async def setting_many_timers() -> str:
    for number in range(1000):
        async with asyncio.timeout(100 + number):
            await asyncio.sleep(0)
    await asyncio.sleep(5)
    handle = asyncio.get_running_loop().call_later(1, print)
    assert (handle.when(), handle.cancelled()) == (BIRTH / 1e6 + 6, False)
    handle.cancel()
    handle.cancel()
    soon = asyncio.get_running_loop().call_soon(print, "never")
    soon.cancel()
    assert handle.cancelled() and soon.cancelled()
    await asyncio.sleep(0.0000001)
    return "done"


def test_cancelled_timers_leave_nothing_behind() -> None:
    life = Life(setting_many_timers)
    assert life.loop.next_timer() == (BIRTH + 5_000_000, "1001")
    assert len(life.loop.timers._heap) < 200
    life.fire()
    assert life.loop.next_timer() == (BIRTH + 5_000_001, "1003")
    assert life.loop.due_timers(BIRTH + 5_000_000) == []
    assert life.fire().outcome == '"done"'


@workflow
async def cancelling_itself() -> None:
    asyncio.current_task().cancel()
    await asyncio.sleep(1)


@workflow
async def ignoring_a_cancel() -> str:
    try:
        await work("first")
    except asyncio.CancelledError:
        return await work("instead")
    return "never"


def test_a_cancel_reaches_the_innermost_await_and_may_be_refused() -> None:
    assert Life(cancelling_itself).seen[0].outcome == "cancelled"
    life = Life(ignoring_a_cancel)
    seen = life.cancel()
    assert seen.dropped == [("work", "1")]
    assert life.finish_step("work", "2").outcome == '"instead"'


def test_a_process_cancelled_before_its_first_turn_runs_nothing() -> None:
    loop = TurnLoop(ID, b"seed")
    loop.begin(ignoring_a_cancel.function)
    loop.message(MessageType.CANCEL, "", b"null")
    loop.run(BIRTH)
    assert (loop.finished, loop.cancelled, loop.failure(), loop.take_outputs()) == (True, True, None, ([], None))


@workflow
async def failing() -> None:
    raise LookupError("no such order")


@workflow
async def leaving() -> None:
    raise SystemExit(3)


@workflow
async def returning_nonsense() -> object:
    return object()


def test_an_error_of_the_workflow_is_its_failure() -> None:
    assert Life(failing).seen[0].outcome == "LookupError: no such order"
    assert Life(leaving).seen[0].outcome == "SystemExit: 3"


def test_a_result_that_is_no_payload_is_told_when_it_is_asked_for() -> None:
    loop = TurnLoop(ID, b"seed")
    loop.begin(returning_nonsense.function)
    loop.run(BIRTH)
    assert loop.finished
    with pytest.raises(PayloadError, match="the result of the workflow"):
        loop.result_payload()


@workflow
async def raising_an_interrupt() -> None:
    raise KeyboardInterrupt("of the code")


@workflow
async def failing_beside_an_interrupt() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raising_an_interrupt.function())


def test_an_interrupt_that_the_code_raises_itself_is_its_failure() -> None:
    assert Life(raising_an_interrupt).seen[0].outcome == "KeyboardInterrupt: of the code"
    assert Life(failing_beside_an_interrupt).seen[0].outcome == "KeyboardInterrupt: of the code"


@workflow
async def interrupted() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_from_the_keyboard_is_for_the_worker_and_not_for_the_process() -> None:
    loop = TurnLoop(ID, b"seed")
    loop.begin(interrupted.function)
    with pytest.raises(KeyboardInterrupt):
        loop.run(BIRTH)
    assert asyncio._get_running_loop() is None
    assert current_turn() is None
    loop.evict()


@workflow
async def turning_in_a_circle() -> None:
    while True:
        await asyncio.sleep(0)


def test_a_turn_that_never_waits_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TURN_CALLS >= 100_000
    monkeypatch.setattr("perdure.turns.bare_loop.TURN_CALLS", 1000)
    loop = TurnLoop(ID, b"seed")
    loop.begin(turning_in_a_circle.function)
    with pytest.raises(WorkflowMisuse, match="without waiting for anything"):
        loop.run(BIRTH)
    loop.evict()


@workflow
async def knowing_itself() -> list[Any]:
    loop = asyncio.get_running_loop()
    turn = current_turn()
    set_state({"step": 1})
    known = [process_id(), turn is loop, loop.is_running(), loop.is_closed(), loop.get_debug(), loop.time()]
    known.append(turn_running(threading.get_ident()) == ID)
    loop.set_debug(True)
    return [*known, loop.get_exception_handler(), loop.get_task_factory(), len(asyncio.all_tasks())]


def test_a_turn_runs_inside_a_task_of_another_loop_and_leaves_it_as_it_was() -> None:
    async def worker() -> Life:
        outer, task = asyncio.get_running_loop(), asyncio.current_task()
        life = Life(knowing_itself)
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        async with asyncio.timeout(5):
            await asyncio.create_task(asyncio.sleep(0))
        return life

    life = asyncio.run(worker())
    text = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    expected = f'["{text}",true,true,false,false,{BIRTH / 1e6:.1f},true,null,null,1]'
    assert life.seen[0].outcome == expected
    assert life.loop.state == b'{"step":1}'
    assert current_turn() is None
    assert turn_running(threading.get_ident()) is None


@workflow
async def turning_inside_a_turn() -> None:
    INNER.begin(failing.function)
    INNER.run(BIRTH)


INNER = TurnLoop(ID, b"seed")


def test_a_turn_cannot_run_inside_a_turn() -> None:
    assert "a turn cannot run inside a turn" in str(Life(turning_inside_a_turn).seen[0].outcome)
    INNER.evict()


def test_in_a_row_of_turns_the_outer_loop_runs_between_them() -> None:
    async def worker() -> None:
        outer, task = asyncio.get_running_loop(), asyncio.current_task()
        with staged():
            for _ in range(2):
                assert Life(branching).seen[0].asked
                assert (asyncio.get_running_loop(), current_turn()) == (outer, None)
        assert (asyncio.get_running_loop(), asyncio.current_task()) == (outer, task)

    asyncio.run(worker())


def test_a_turn_cannot_run_before_it_has_begun() -> None:
    with pytest.raises(RuntimeError, match="before begin"):
        TurnLoop(ID, b"seed").run(BIRTH)


@workflow
async def reaching_out() -> int:
    loop: Any = asyncio.get_running_loop()
    refused = 0
    for name in OUTSIDE:
        try:
            outcome = getattr(loop, name)(None)
            if asyncio.iscoroutine(outcome):
                await outcome
        except WorkflowMisuse:
            refused += 1
    for attempt in (lambda: asyncio.to_thread(print), lambda: asyncio.open_connection("localhost", 1)):
        try:
            await attempt()
        except WorkflowMisuse:
            refused += 1
    return refused


def test_whatever_reaches_beyond_the_turn_is_refused() -> None:
    assert Life(reaching_out).seen[0].outcome == str(len(OUTSIDE) + 2)


@workflow
async def making_foreign_tasks() -> None:
    asyncio.get_running_loop().set_task_factory(None)
    task = asyncio.Task(_ask())
    try:
        asyncio.get_running_loop().set_task_factory(lambda loop, coro: asyncio.Task(coro))
    finally:
        await task


async def _ask() -> None:
    await work("x")


def test_tasks_that_the_turn_did_not_make_are_refused() -> None:
    assert "Use asyncio.create_task()" in str(Life(making_foreign_tasks).seen[0].outcome)


@workflow
async def asking_in_callbacks() -> str:
    loop = asyncio.get_running_loop()
    promises: list[Any] = []
    loop.call_soon(lambda: promises.append(work("from a callback")))
    await asyncio.sleep(0)
    return await promises[0]


def test_a_callback_asks_in_the_name_of_the_root() -> None:
    life = Life(asking_in_callbacks)
    assert life.seen[0].open == [("work", "1")]
    assert life.finish_step("work").outcome == '"from a callback"'


@workflow
async def answering_by_hand() -> None:
    promise: Any = work("x")
    for attempt in (lambda: promise.set_result("y"), lambda: promise.set_exception(ValueError())):
        with pytest.raises(WorkflowMisuse, match="comes from running it"):
            attempt()
    assert promise.future is promise
    await promise


colour: ContextVar[str] = ContextVar("colour", default="none")


@workflow
async def painting() -> str:
    colour.set("red")
    await work()
    return colour.get()


def test_what_a_workflow_puts_into_its_context_is_there_in_later_turns_and_in_no_other_process() -> None:
    assert Life(painting).finish_step("work").outcome == '"red"'
    assert colour.get() == "none"


def test_the_code_cannot_answer_its_own_asks() -> None:
    assert Life(answering_by_hand).finish_step("work").outcome == "null"


def test_timers_due_are_told_in_firing_order_without_taking_them() -> None:
    life = Life(waiting_for_everything)
    assert life.loop.due_timers(BIRTH) == []
    assert life.loop.due_timers(BIRTH + 60_000_000) == [(BIRTH + 60_000_000, ".1:1")]
    assert life.loop.next_timer() == (BIRTH + 60_000_000, ".1:1")


def test_a_clean_process_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        Life(knowing_itself)
    assert caplog.records == []


def test_the_front_of_the_room_offers_what_the_runtime_uses() -> None:
    assert room.__all__ == ["Ask", "TurnLoop", "current_turn", "turn_running"]
