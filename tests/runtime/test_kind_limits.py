"""Kinds with limits, on both stores: who runs and who waits, who has set the limits, and what people see of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Limits, workflow
from perdure.client import kinds
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.errors import DefinitionError, InvalidInput, InvalidKey
from perdure.kernel.commit import StartVerdict
from perdure.kernel.diagnosis import NextMover
from perdure.kernel.kind import DECLARED
from perdure.kernel.queue import Queue
from perdure.store.base import Search
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import LIMIT, Open, until
from tests.runtime.parcels import (
    ALL,
    ONE,
    begun,
    declared,
    forget,
    gates,
    instant,
    listening,
    most,
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


# -- what people see ---------------------------------------------------------------------------------------------------


async def test_explain_and_the_board_name_the_place_and_since_when(opened: Open) -> None:
    engine = await working(opened)
    await engine.kinds.limit("listening", ONE, who="ana")
    _, second = await started(engine, listening, "a", "b")
    await until(lambda: begun == ["a"])
    row = await engine.row(second.id)
    found = await engine.explain(second.id)
    assert found.cause is Diagnosis.KIND_FULL
    assert found.why == "it waits for a place among processes of its kind (1 of 1 run)"
    assert found.mover is NextMover.PLACE
    assert [one.command for one in found.proposals] == ["perdure kind ls"]
    lines = {(line.kind, line.mover): line for line in await engine.board()}
    line = lines["listening", NextMover.PLACE]
    assert line.count == 1
    assert line.since is not None
    assert round(line.since.timestamp() * 1_000_000) == row.due_at
    assert [one.id for one in await engine.list(where="mover = place")] == [second.id]


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


async def test_what_a_person_sets_while_a_worker_declares_other_limits_stands(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await opened()
    plain = kinds.changed

    async def late(*given: Any) -> Queue:
        if given[3].origin == DECLARED:  # the worker has seen that there are none
            await client.kinds.limit("declared", Limits(running=3), who="ana")
        return await plain(*given)

    monkeypatch.setattr(kinds, "changed", late)
    engine = await working(opened)
    [view] = await engine.kinds.list()
    assert (view.running, view.who, view.origin) == (3, "ana", "client")


async def test_limits_that_were_taken_out_of_the_code_are_taken_away_and_what_waits_goes_on(opened: Open) -> None:
    before = await working(opened)
    handles = await started(before, declared, *"abcd")
    await until(lambda: len(under_way) == 2)
    after, _ = await opened(work=True, workflows=[workflow(name="declared")(declared.function)])
    [view] = await after.kinds.list()
    assert (view.running, view.waiting, view.who, view.origin) == (None, 0, "", "workflow")
    assert view.why == "its workflow declares none"
    await until(lambda: len(under_way) == 4)
    for name in "abcd":
        gates[name].set()
    assert [await handle.result(LIMIT) for handle in handles] == [*"abcd"]
    await working(opened)
    assert (await viewed(after, "declared")).running == 2, "the worker that has started last declares them again"


async def test_limits_that_a_person_has_set_or_taken_away_stand_when_the_code_declares_none(opened: Open) -> None:
    await working(opened)
    client, _ = await opened()
    plain = workflow(name="declared")(declared.function)
    for limit in (Limits(running=3), None):
        if limit is None:
            await client.kinds.unlimit("declared", who="ana")
        else:
            await client.kinds.limit("declared", limit, who="ana")
        before = await viewed(client, "declared")
        await opened(work=True, workflows=[plain])
        assert await viewed(client, "declared") == before


async def test_a_worker_whose_workflows_declare_no_limits_reads_once_whether_they_have_any(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, plain = list[Any](), FaultyStore.records

    async def records(store: FaultyStore, type: Any, *given: Any) -> Any:
        read.append((type, *given))
        return await plain(store, type, *given)

    monkeypatch.setattr(FaultyStore, "records", records)
    engine, _ = await opened(work=True, workflows=[parcel, listening, renewed, retried, instant])
    assert [await handle.result(LIMIT) for handle in await started(engine, instant, *"abc")] == [*"abc"]
    assert read.count((Queue,)) == 1
    assert await engine.kinds.list() == []


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
