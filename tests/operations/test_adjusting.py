"""Operations that move, set a priority or a deadline, or cancel: each process once, and back where that can be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import json

from perdure import Engine, ProcessFailed, Search, limits, receive, step, workflow
from perdure.authoring.operation.plan import CHANGED, OperationPlan, OperationStatus, Window
from perdure.authoring.workflow import Workflow
from perdure.errors import InvalidInput, InvalidKey, ProcessCancelled
from perdure.kernel.event import EventType
from perdure.kernel.message import MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.testing.faults import FaultyStore, Gate
from tests.operations import bank
from tests.operations.test_operations import after_an_outage
from tests.runtime.conftest import LIMIT, Open, until_row

TRIPS = "kind = trip"


@step
async def book(what: str) -> str:
    return what


def trip(version: str, what: str = "a train") -> Workflow[Any, Any]:
    """A version of a workflow that books something, waits, and says by which version it has ended."""

    @workflow(name="trip", version=version)
    async def flow(number: int) -> str:
        await book(what)
        await receive("go")
        return f"{number} by {version}"

    return flow


OLD, NEW, OTHER = trip("1"), trip("2"), trip("3", "a flight")


async def waiting(opened: Open, many: int, *flows: Workflow[Any, Any]) -> tuple[Engine, FaultyStore, list[str]]:
    """A worker of these versions, and trips of the first that wait for a signal."""
    engine, store = await opened(work=True, workflows=list(flows))
    ids = [(await engine.start(flows[0], n)).id for n in range(many)]
    for id in ids:
        await until_row(engine, id, lambda row: row.owner is None and row.awaiting == "signal go")
    return engine, store, ids


async def carried_out(engine: Engine, verb: str, where: str = TRIPS, **settings: Any) -> tuple[str, OperationStatus]:
    operation = await engine.operations.start(verb, where, **{"watch": 0, "who": "ann", "why": "a test"} | settings)
    return operation.id, await operation.result(LIMIT)


async def undone(engine: Engine, id: str) -> OperationStatus:
    return await (await engine.operations.undo(id, who="bob")).result(LIMIT)


async def test_all_are_moved_to_another_version_and_back_unless_they_have_gone_on_with_it(opened: Open) -> None:
    engine, _, ids = await waiting(opened, 4, OLD, NEW)
    assert (await engine.operations.preview("move", TRIPS, value="2")).would == 4
    assert {(await engine.row(id)).code for id in ids} == {"1"}, "nothing was written"
    moved, outcome = await carried_out(engine, "move", value="2")
    assert (outcome.done, outcome.planned, outcome.left_out) == (4, 4, {})
    [event] = [one for one in await engine.process(ids[0]).history() if one.type is EventType.VERSION_MOVED]
    told = json.decode(event.payload or b"")
    assert told == {"who": "ann", "why": "a test", "origin": f"operation {moved}", "to": "2", "was": "1"}
    await engine.process(ids[0]).signal("go")
    assert await engine.process(ids[0]).result(LIMIT) == "0 by 2"
    outcome = await undone(engine, moved)
    assert outcome.done == 3 and sum(outcome.left_out.values()) == 1
    for number, id in enumerate(ids[1:], 1):
        await engine.process(id).signal("go")
        assert await engine.process(id).result(LIMIT) == f"{number} by 1"


async def test_a_version_that_nobody_hosts_leaves_all_out_in_the_dry_run_and_in_earnest_unless_forced(
    opened: Open,
) -> None:
    engine, _, ids = await waiting(opened, 2, OLD)
    preview = await engine.operations.preview("move", TRIPS, value="2")
    [why] = preview.left_out
    assert preview.would == 0 and "no live worker hosts workflow 'trip' version '2'" in why
    _, outcome = await carried_out(engine, "move", value="2")
    assert (outcome.done, outcome.left_out, outcome.failed) == (0, {why: 2}, {})
    assert (await engine.operations.preview("move", TRIPS, value="2", force=True)).would == 2
    forced, outcome = await carried_out(engine, "move", value="2", force=True)
    assert outcome.done == 2
    assert (await undone(engine, forced)).done == 2 and (await engine.row(ids[0])).code == "1"


async def test_what_breaks_by_a_move_is_a_relapse_and_is_moved_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDOVER_ALONE_SECONDS", 0.0)
    engine, _, ids = await waiting(opened, 3, OLD, OTHER)
    operation = await engine.operations.start("move", TRIPS, value="3", canary=1, watch=0.5)
    await until_row(engine, operation.id, lambda row: b'"stopped":"1 of 1' in (row.state or b""))
    await operation.abort("the code does not fit")
    assert (await operation.result(LIMIT)).relapsed == 1
    assert (await undone(engine, operation.id)).done == 1
    [broken] = await engine.list(Search(kind="trip", statuses=(Status.BROKEN,)))
    assert broken.code == "1" and broken.id in ids
    await engine.process(broken.id).retry()
    await engine.process(broken.id).signal("go")
    assert (await engine.process(broken.id).result(LIMIT)).endswith("by 1")


async def test_what_had_failed_before_it_was_moved_has_not_relapsed(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    settings = {"value": "fixed", "force": True, "canary": 1}
    _, outcome = await carried_out(engine, "move", "kind = payment and status = failed", **settings)
    assert (outcome.phase, outcome.done, outcome.relapsed) == ("done", 3, 0)
    handle = await engine.handle(bank.payment, "A-0")
    await handle.retry()
    assert (await engine.row(handle.id)).code == "fixed"


@pytest.mark.parametrize(
    ("verb", "value", "column"), [("set-priority", 0, "priority"), ("set-deadline", 3600, "deadline")]
)
async def test_all_are_given_a_value_and_their_old_one_unless_a_person_has_set_another(
    opened: Open, verb: str, value: object, column: str
) -> None:
    engine, _, ids = await waiting(opened, 3, OLD)
    before = [getattr(await engine.row(id), column) for id in ids]
    id, outcome = await carried_out(engine, verb, value=value)
    assert (outcome.done, outcome.relapsed, outcome.left_out) == (3, 0, {})
    assert all([getattr(await engine.row(id), column) not in before for id in ids])
    if verb == "set-priority":
        await engine.process(ids[0]).set_priority(7, who="bob")
    else:
        await engine.process(ids[0]).set_deadline(7200, who="bob")
    await engine.process(ids[1]).signal("go")
    await engine.process(ids[1]).result(LIMIT)
    outcome = await undone(engine, id)
    assert outcome.done == 1 and outcome.left_out["a person has set another one since"] == 1
    assert getattr(await engine.row(ids[2]), column) == before[2]


async def test_the_undo_of_a_live_operation_counts_each_process_once(opened: Open) -> None:
    engine, _, _ = await waiting(opened, 2, OLD)
    id, outcome = await carried_out(engine, "set-priority", value=1, live=1.0, watch=0.2)
    chosen_again = outcome.left_out["it was commanded before"]
    assert outcome.done == 2 and chosen_again >= 2, "the change itself has made them fit again"
    assert (await engine.operations.preview_undo(id)).would == 2
    back = await undone(engine, id)
    assert (back.planned, back.done, back.left_out) == (2, 2, {})


async def test_a_deadline_of_an_operation_is_a_time_or_none(opened: Open) -> None:
    engine, _, ids = await waiting(opened, 1, OLD)
    await carried_out(engine, "set-deadline", value="2999-01-01T00:00+01:00")
    assert str((await engine.process(ids[0]).status()).deadline) == "2998-12-31 23:00:00+00:00"
    await carried_out(engine, "set-deadline", value="none")
    assert (await engine.row(ids[0])).deadline is None
    await carried_out(engine, "set-deadline", value=0.1)
    with pytest.raises(ProcessFailed, match="ran over its deadline"):
        await engine.process(ids[0]).result(LIMIT)


async def test_all_are_asked_to_cancel_and_what_has_ended_is_left_out(opened: Open) -> None:
    engine, _, ids = await waiting(opened, 3, OLD)
    await engine.process(ids[0]).signal("go")
    await engine.process(ids[0]).result(LIMIT)
    preview = await engine.operations.preview("cancel", TRIPS)
    assert preview.would == 2 and sum(preview.left_out.values()) == 1
    assert (await engine.row(ids[1])).inbox == 0, "nothing was sent"
    id, outcome = await carried_out(engine, "cancel")
    assert (outcome.done, outcome.left_out) == (2, preview.left_out)
    for one in ids[1:]:
        with pytest.raises(ProcessCancelled):
            await engine.process(one).result(LIMIT)
    taken_back = await engine.operations.preview_undo(id)
    assert taken_back.would == 0 and any("its code has heard it" in why for why in taken_back.left_out)


async def test_a_portion_that_is_done_again_cancels_nobody_twice_and_counts_as_before(opened: Open) -> None:
    worker, _, ids = await waiting(opened, 3, OLD)
    await worker.close()
    engine, store = await opened()
    plan, window = OperationPlan("cancel", TRIPS, who="ann"), Window(await engine.store.now())
    first = await engine.operations.carry_out(plan, "one", window, ids)
    assert first == await engine.operations.carry_out(plan, "one", window, ids)
    later, _ = await opened(work=True, workflows=[OLD])
    for id in ids:
        with pytest.raises(ProcessCancelled):
            await later.process(id).result(LIMIT)
    again = await engine.operations.carry_out(plan, "one", window, ids)
    assert (first.done, again) == (3, first)
    other = await engine.operations.carry_out(plan, "another", window, ids)
    assert (other.done, other.left_out) == (0, {CHANGED: 3})
    for row in await asyncio.gather(*(engine.row(id) for id in ids)):
        wishes = [one for one in await store.messages([(row.id, 0)]) if one.type is MessageType.CANCEL]
        assert [json.decode(one.sender or b"")["who"] for one in wishes] == ["ann"]


async def test_two_workers_that_carry_out_one_portion_at_once_cancel_each_process_once(opened: Open) -> None:
    worker, _, ids = await waiting(opened, 1, OLD)
    await worker.close()
    engine, store = await opened()
    heir, _ = await opened()
    plan, window = OperationPlan("cancel", TRIPS), Window(await engine.store.now())
    store.before = gate = Gate("send")
    late = asyncio.create_task(engine.operations.carry_out(plan, "one", window, ids))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    assert (await heir.operations.carry_out(plan, "one", window, ids)).done == 1
    gate.open.set()
    assert (await late).done == 1
    assert (await engine.row(ids[0])).inbox == 1


async def test_a_live_operation_cancels_nobody_twice(opened: Open) -> None:
    worker, _, ids = await waiting(opened, 1, OLD)
    await worker.close()
    engine, _ = await opened()
    plan, until = OperationPlan("cancel", TRIPS), await engine.store.now()
    one = id_text(engine.machine.new_id())
    assert (await engine.operations.carry_out(plan, one, Window(until), ids)).done == 1
    again = await engine.operations.carry_out(plan, one, Window(await engine.store.now(), until), ids)
    assert (again.done, again.left_out) == (0, {"it was commanded before": 1})
    assert (await engine.row(ids[0])).inbox == 1


@pytest.mark.parametrize(
    ("verb", "given", "told"),
    [
        ("move", {}, "needs a value: value='2'"),
        ("move", {"value": 2}, "Give a text, like '2'"),
        ("set-priority", {}, "needs a value: value=1"),
        ("set-priority", {"value": 10}, "0 \\(first\\) to 9"),
        ("set-priority", {"value": 1, "force": True}, "takes no force"),
        ("set-deadline", {}, "needs a value: value=3600, or 'none'"),
        ("set-deadline", {"value": 0}, "Give seconds or a timedelta"),
        ("set-deadline", {"value": False}, "Give seconds or a timedelta"),
        ("set-deadline", {"value": "tomorrow"}, "a time with its zone"),
        ("set-deadline", {"value": "2999-01-01T00:00"}, "a time with its zone"),
        ("set-deadline", {"value": [1]}, "Give seconds or a timedelta"),
        ("cancel", {"value": 5}, "takes no value"),
    ],
)
async def test_what_does_not_fit_the_verb_is_refused_at_the_door(
    opened: Open, verb: str, given: dict[str, Any], told: str
) -> None:
    engine, _ = await opened()
    with pytest.raises(InvalidInput, match=told):
        await engine.operations.start(verb, TRIPS, **given)
    with pytest.raises(InvalidKey):
        await engine.operations.preview("move", TRIPS, value="x" * 1000)
    assert await engine.operations.list() == []
