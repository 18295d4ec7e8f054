"""Kinds with limits, on both stores: who runs and who waits, and what becomes of a place whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

import pytest

from perdure import Engine, Limits, continue_as_new, receive, step, workflow
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.client.handle import Handle
from perdure.client.kinds import KindView
from perdure.errors import DefinitionError, InvalidInput, InvalidKey, ProcessCancelled, ProcessFailed
from perdure.kernel.commit import StartVerdict
from perdure.kernel.diagnosis import NextMover
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row

begun: list[str] = []
ran: Counter[str] = Counter()
most: list[int] = []
under_way: set[str] = set()
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
ONE, TWO = Limits(running=1), Limits(running=2)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    begun.clear()
    ran.clear()
    most.clear()
    under_way.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def pack(name: str) -> str:
    ran[name] += 1
    under_way.add(name)
    most.append(len(under_way))
    try:
        await gates[name].wait()
    finally:
        under_way.discard(name)
    if name.startswith("bad"):
        raise ValueError(name)
    return name


@workflow(name="parcel")
async def parcel(name: str) -> str:
    begun.append(name)
    return await pack(name)


@workflow(name="declared", limits=TWO)
async def declared(name: str) -> str:
    begun.append(name)
    return await pack(name)


@workflow(name="listening")
async def listening(name: str) -> str:
    begun.append(name)
    return await receive("go", str)


@workflow(name="renewed")
async def renewed(name: str, rounds: int) -> str:
    begun.append(f"{name} {rounds}")
    await pack(name)
    return name if rounds == 1 else await continue_as_new(name, rounds - 1)


@workflow(name="retried", retry=Retry(attempts=2, first=0.01, jitter=0))
async def retried(name: str) -> str:
    begun.append(name)
    return await pack(name)


@workflow(name="instant")
async def instant(name: str) -> str:
    begun.append(name)
    return name


ALL = [parcel, declared, listening, renewed, retried, instant]


async def working(opened: Open, **settings: Any) -> Engine:
    """A worker that hosts them all."""
    engine, _ = await opened(work=True, workflows=ALL, **settings)
    return engine


async def started(engine: Engine, flow: Any, *names: str) -> list[Handle[Any]]:
    """Start one of these for each name, one after the other."""
    return [await engine.start(flow, name) for name in names]


async def settled(engine: Engine) -> None:
    """Let the engine's worker look once more at all that is due."""
    assert engine.worker is not None
    await engine.worker.claimer.look()


async def viewed(engine: Engine, kind: str) -> KindView:
    """The limits of a kind, and what runs and waits of it."""
    return next(view for view in await engine.kinds.list() if view.kind == kind)


async def waits(engine: Engine, handle: Handle[Any]) -> None:
    """It is told that it waits for a place."""
    seen = await handle.status()
    assert (seen.mover, seen.status) == (NextMover.PLACE, Status.RUNNING)
    assert "it waits for a place among processes of its kind" in seen.waiting


async def test_all_workers_together_run_no_more_of_a_kind_than_its_workflow_declares(opened: Open) -> None:
    first = await working(opened)
    for _ in range(2):
        await working(opened)
    names = [str(number) for number in range(8)]
    handles = await started(first, declared, *names)
    await until(lambda: len(under_way) == 2)
    [view] = await first.kinds.list()
    assert (view.kind, view.admitted, view.waiting, view.running, view.origin) == ("declared", 2, 6, 2, "workflow")
    assert begun == names[:2]
    for name in names:
        gates[name].set()
    assert [await handle.result(LIMIT) for handle in handles] == names
    assert max(most) <= 2
    assert begun[:2] == names[:2]
    assert set(ran.values()) == {1}


async def test_a_workflow_that_is_first_started_here_has_its_limits_from_the_beginning(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[parcel])
    handles = await engine.start_many(declared, [("a",), ("b",), ("c",)])
    await until(lambda: len(under_way) == 2)
    await waits(engine, handles[2])
    for name in "abc":
        gates[name].set()
    assert [await handle.result(LIMIT) for handle in handles] == ["a", "b", "c"]


async def test_what_runs_when_a_person_sets_limits_goes_on_and_counts(opened: Open) -> None:
    engine = await working(opened)
    await started(engine, parcel, "a", "b")
    await until(lambda: len(under_way) == 2)
    view = await engine.kinds.limit("parcel", ONE, who="ana", why="the hall is small")
    assert (view.admitted, view.running, view.who, view.why) == (2, 1, "ana", "the hall is small")
    third = await engine.start(parcel, "c")
    gates["a"].set()
    await until(lambda: "a" not in under_way)
    await settled(engine)
    await waits(engine, third)
    gates["b"].set()
    gates["c"].set()
    assert await third.result(LIMIT) == "c"


async def test_no_worker_begins_one_by_itself_that_does_not_know_of_the_limits_yet(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=ALL)
    client, _ = await opened()
    await client.kinds.limit("parcel", ONE)
    a, b = await started(engine, parcel, "a", "b")
    await until(lambda: under_way == {"a"})
    await settled(engine)
    assert ran["b"] == 0
    answers = [answer for name, answer in store.calls if name == "start"]
    assert len(answers) == 3, "the first one is stored a second time, without its first turn"
    gates["a"].set()
    gates["b"].set()
    assert [await a.result(LIMIT), await b.result(LIMIT)] == ["a", "b"]


async def test_without_limits_all_that_waits_goes_on(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("parcel", ONE)
    await started(engine, parcel, *"abcd")
    await until(lambda: len(under_way) == 1)
    view = await engine.kinds.unlimit("parcel", who="bob")
    assert (view.running, view.starts, view.waiting, view.who) == (None, None, 0, "bob")
    await until(lambda: len(under_way) == 4)


async def test_no_more_start_than_the_rate_says_and_the_first_free_place_is_taken(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("instant", Limits(starts=2, per=timedelta(hours=1)))
    handles = await started(engine, instant, *"abc")
    assert [await handle.result(LIMIT) for handle in handles[:2]] == ["a", "b"]
    await settled(engine)
    seen = await handles[2].status()
    assert "2 have started in 3600 s" in seen.waiting
    await engine.kinds.limit("instant", Limits(starts=2, per=0.2))
    assert await handles[2].result(LIMIT) == "c"


# -- what becomes of a place -------------------------------------------------------------------------------------------


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


# -- what people see ---------------------------------------------------------------------------------------------------


async def test_explain_and_the_board_name_the_place_and_since_when(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE, who="ana")
    _, second = await started(engine, listening, "a", "b")
    await until(lambda: begun == ["a"])
    row = await engine.row(second.id)
    found = await engine.explain(second.id)
    assert found.causes[0].cause is Diagnosis.KIND_FULL
    assert found.causes[0].why == "it waits for a place among processes of its kind (1 of 1 run)"
    assert any("perdure kind ls" in one.command for one in found.proposals)
    lines = {(line.kind, line.mover): line for line in await engine.board()}
    line = lines["listening", NextMover.PLACE]
    assert line.count == 1
    assert line.since is not None
    assert round(line.since.timestamp() * 1_000_000) == row.due_at
    assert [one.id for one in await engine.find("mover = place")] == [second.id]


async def test_limits_are_checked_where_they_are_given(opened: Open) -> None:
    for wrong in ({}, {"running": 0}, {"running": True}, {"starts": 5}, {"per": 5}, {"starts": 5, "per": 0}):
        with pytest.raises(DefinitionError):
            Limits(**wrong)
    with pytest.raises(DefinitionError, match="Limits"):
        workflow(name="wrong", limits=5)(parcel.function)
    engine, _ = await opened()
    with pytest.raises(InvalidInput, match="Limits"):
        await engine.kinds.limit("parcel", 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"engine\.queues\.limit"):
        await engine.kinds.limit("@bank", ONE)
    with pytest.raises(InvalidInput, match="Perdure's own"):
        await engine.kinds.unlimit("perdure/schedule")
    with pytest.raises(InvalidKey):
        await engine.kinds.limit("", ONE)
    assert await engine.kinds.list() == []


async def test_what_a_person_has_set_stands_over_what_the_workflow_declares(opened: Open) -> None:
    client, _ = await opened()
    await client.kinds.limit("declared", Limits(running=3), who="ana")
    engine = await working(opened)
    [view] = await engine.kinds.list()
    assert (view.running, view.who, view.origin) == (3, "ana", "client")
    await started(engine, declared, *"abcd")
    await until(lambda: len(under_way) == 3)
    assert await engine.queues.list() == []


async def test_a_kind_without_limits_is_started_as_ever(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=ALL)
    await engine.kinds.limit("listening", ONE)
    store.calls.clear()
    handle = await engine.start(parcel, "a")
    await until(lambda: under_way == {"a"})
    assert [name for name, _ in store.calls if name in ("start", "records")] == ["start"]
    gates["a"].set()
    assert await handle.result(LIMIT) == "a"
    assert StartVerdict.LIMITED == "limited"
    assert len(await engine.list(Search(kind="parcel"))) == 1
