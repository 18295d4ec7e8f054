"""What becomes of a place among the processes of a kind, on both stores: commands, ends, new runs and deaths."""

from __future__ import annotations

import pytest

from perdure import Limits, workflow
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.kernel.process import Status
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row
from tests.runtime.parcels import (
    ONE,
    TWO,
    begun,
    forget,
    gates,
    listening,
    pack,
    parcel,
    ran,
    renewed,
    retried,
    settled,
    started,
    under_way,
    viewed,
    waits,
    working,
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


async def test_one_that_waits_is_cancelled_when_its_turn_comes_and_terminated_at_once(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE)
    first, second, third = await started(engine, listening, "a", "b", "c")
    await until(lambda: begun == ["a"])
    await second.cancel()
    await third.terminate(who="ana")
    with pytest.raises(ProcessCancelled):
        await third.result(LIMIT)
    await settled(engine)
    assert (await second.status()).status is Status.RUNNING
    await first.signal("go", "on")
    with pytest.raises(ProcessCancelled):
        await second.result(LIMIT)
    assert "c" not in begun


@pytest.mark.parametrize("end", ["cancel", "terminate", "fail"])
async def test_each_command_that_ends_a_process_gives_its_place_to_the_next_one(opened: Open, end: str) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE)
    first, _ = await started(engine, listening, "a", "b")
    await until(lambda: begun == ["a"])
    await getattr(first, end)()
    await until(lambda: begun == ["a", "b"])


async def test_a_held_process_keeps_its_place_and_one_that_is_held_while_it_waits_gets_none(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE)
    first, second, third = await started(engine, listening, "a", "b", "c")
    await until(lambda: begun == ["a"])
    await second.hold(who="ana")
    await first.hold(who="ana")
    await settled(engine)
    assert begun == ["a"]
    await waits(engine, third)
    await first.resume()
    await first.signal("go", "on")
    await until(lambda: begun[-1] == "c")
    await second.resume()
    await settled(engine)
    await waits(engine, second)
    await third.signal("go", "on")
    await until(lambda: begun[-1] == "b")


async def test_a_process_that_is_restarted_keeps_its_place_and_one_that_had_ended_waits_again(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE)
    first, second = await started(engine, listening, "a", "b")
    await until(lambda: begun == ["a"])
    await first.restart(who="ana")
    await until(lambda: begun == ["a", "a"])
    await first.signal("go", "on")
    await until(lambda: begun == ["a", "a", "b"])
    assert await first.result(LIMIT) == "on"
    await first.restart(who="ana")
    await settled(engine)
    await waits(engine, first)
    await second.signal("go", "on")
    await until(lambda: begun == ["a", "a", "b", "a"])


async def test_a_failed_process_that_is_retried_waits_for_a_place_again(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("parcel", ONE)
    bad, _ = await started(engine, parcel, "bad", "other")
    gates["bad"].set()
    with pytest.raises(ProcessFailed):
        await bad.result(LIMIT)
    await until(lambda: under_way == {"other"})
    await bad.retry(who="ana")
    await settled(engine)
    await waits(engine, bad)
    gates["other"].set()
    await until(lambda: ran["bad"] == 2)
    assert ran["other"] == 1


async def test_runs_that_follow_each_other_keep_one_place_and_count_as_one_start(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("renewed", Limits(running=1, starts=2, per=3600))
    await engine.kinds.limit("retried", Limits(running=1, starts=1, per=3600))
    first, last = await engine.start(renewed, "a", 3), await engine.start(renewed, "b", 1)
    gates["a"].set()
    assert await first.result(LIMIT) == "a"
    gates["b"].set()
    assert await last.result(LIMIT) == "b"
    assert begun == ["a 3", "a 2", "a 1", "b 1"]
    bad = await engine.start(retried, "bad")
    gates["bad"].set()
    with pytest.raises(ProcessFailed):
        await bad.result(LIMIT)
    assert begun[4:] == ["bad", "bad"]


async def test_a_process_that_is_removed_or_terminated_while_it_waits_leaves_nothing_behind(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE)
    first, second, third = await started(engine, listening, "a", "b", "c")
    await second.terminate()
    await second.remove()
    await first.terminate()
    await first.remove()
    await until(lambda: begun[-1:] == ["c"])
    view = await viewed(engine, "listening")
    assert (view.admitted, view.waiting) == (1, 0)
    await third.terminate()
    view = await viewed(engine, "listening")
    assert (view.admitted, view.waiting, view.oldest) == (0, 0, 0.0)


async def test_a_dead_workers_process_goes_on_elsewhere_with_its_place_and_runs_no_step_again(opened: Open) -> None:
    @workflow(name="two steps")
    async def two_steps(name: str) -> str:
        return await pack(name) + await pack(f"{name} again")

    one, store = await opened(work=True, workflows=[two_steps])
    await one.kinds.limit("two steps", ONE)
    gates["a"].set()
    first, second = await started(one, two_steps, "a", "b")
    await until(lambda: "a again" in under_way)
    await lose(one, store)
    two, _ = await opened(work=True, workflows=[two_steps])
    await until(lambda: ran["a again"] == 2)
    await settled(two)
    assert (ran["a"], ran["b"]) == (1, 0)
    gates["a again"].set()
    for name in ("b", "b again"):
        gates[name].set()
    assert await two.process(first.id).result(LIMIT) == "aa again"
    assert await two.process(second.id).result(LIMIT) == "bb again"


async def test_a_process_that_sleeps_keeps_its_place(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", TWO)
    handles = await started(engine, listening, *"abc")
    await until(lambda: len(begun) == 2)
    for handle in handles[:2]:
        await until_row(engine, handle.id, lambda row: row.owner is None and row.reminder)
    await settled(engine)
    await waits(engine, handles[2])
    await handles[0].signal("go", "on")
    await until(lambda: begun == ["a", "b", "c"])
