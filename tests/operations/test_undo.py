"""Undo of an operation: what has an inverse is taken back if nothing has happened since, all else is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perdure import Engine, Search, machine, receive, workflow
from perdure.authoring.operation import machine as operation_machine
from perdure.authoring.operation.plan import OperationPlan, OperationStatus, Window
from perdure.client.operation_verb import VERBS
from perdure.errors import IllegalMove, InvalidInput, ProcessNotFound
from perdure.kernel.inverse import HAVE_INVERSE, no_inverse
from perdure.kernel.process import Status
from tests.operations import bank
from tests.operations.test_operations import FAILED, after_an_outage
from tests.runtime.conftest import LIMIT, Open, until_row

WAITING = "kind = payment"


class Till(machine.Machine):
    """A till with a field."""

    total: int = 0

    @machine.init
    def opened(self, total: int) -> None:
        """It begins with so much."""
        self.total = total

    @machine.call
    def added(self, amount: int) -> int:
        """So much more."""
        self.total += amount
        return self.total


@workflow
async def approval(number: int) -> int:
    """It waits for a person."""
    await receive("approved")
    return number


async def carried_out(engine: Engine, verb: str, where: str, **settings: Any) -> tuple[str, OperationStatus]:
    operation = await engine.operations.start(verb, where, watch=0, **settings)
    return operation.id, await operation.result(LIMIT)


async def delayed(opened: Open, many: int) -> Engine:
    """Payments that have not begun."""
    engine, _ = await opened(work=True, workflows=[bank, Till])
    for n in range(many):
        await engine.start(bank.payment.options(key=f"A-{n}", delay=3600), f"A-{n}")
    return engine


async def statuses(engine: Engine, kind: str = "payment") -> dict[str, int]:
    return (await engine.count(Search(kind=kind)))[kind]


async def test_what_was_held_goes_on_but_for_what_others_have_commanded_since(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_machine, "PORTION", 2)
    engine, _ = await opened(work=True, workflows=[approval])
    by_hand = [await engine.start(approval, n) for n in range(7)]
    id, outcome = await carried_out(engine, "hold", "kind = approval")
    assert outcome.done == outcome.planned == 7
    await by_hand[0].resume(who="bob")
    await by_hand[1].resume(who="bob")
    await by_hand[1].hold(who="bob")
    await by_hand[2].remove(force=True, who="bob")
    preview = await engine.operations.preview_undo(id)
    assert (preview.would, preview.left_out) == (
        4,
        {"it is running since, by another command": 1, "it is held since, by another command": 1},
    )
    undo = await engine.operations.undo(id, who="ann", why="the wrong thousand")
    outcome = await undo.result(LIMIT)
    assert (outcome.done, outcome.planned, outcome.left_out) == (4, 7, {**preview.left_out, "it was removed": 1})
    assert await statuses(engine, "approval") == {"running": 5, "held": 1}
    with pytest.raises(IllegalMove, match="an undo cannot be taken back"):
        await engine.operations.undo(undo.id)


async def test_what_was_resumed_is_held_again_unless_it_has_gone_on(opened: Open) -> None:
    engine, _ = await opened(workflows=[bank])
    handles = [await engine.start(bank.payment.options(key=f"A-{n}", delay=3600), f"A-{n}") for n in range(2)]
    for handle in handles:
        await handle.hold()
    worker, _ = await opened(work=True, workflows=[])
    id, outcome = await carried_out(worker, "resume", WAITING)
    assert outcome.done == 2
    await handles[0].hold(who="bob")
    await handles[0].resume(who="bob")
    outcome = await (await worker.operations.undo(id)).result(LIMIT)
    [why] = outcome.left_out
    assert outcome.done == 1 and "has gone on since" in why
    assert [(await handle.status()).status for handle in handles] == ["running", "held"]


async def test_an_edited_input_gets_its_old_value_if_it_has_not_begun_with_the_new_one(opened: Open) -> None:
    engine = await delayed(opened, 3)
    first = await engine.handle(bank.payment, "A-0")
    await first.edit_input(["A-X"], who="bob")
    id, outcome = await carried_out(engine, "edit-input", WAITING, value=["A-9"])
    assert outcome.done == 3
    bank.down.clear()
    await (await engine.handle(bank.payment, "A-1")).restart(who="bob")
    assert await (await engine.handle(bank.payment, "A-1")).result(LIMIT) == "A-9"
    outcome = await (await engine.operations.undo(id)).result(LIMIT)
    assert outcome.done == 2 and sum(outcome.left_out.values()) == 1
    for key, value in {"A-0": "A-X", "A-2": "A-2"}.items():
        handle = await engine.handle(bank.payment, key)
        await handle.restart()
        assert await handle.result(LIMIT) == value


async def test_edited_fields_get_their_old_values_if_nothing_has_happened_since(opened: Open) -> None:
    engine = await delayed(opened, 0)
    tills = [await engine.start(Till.opened.options(key=f"T-{n}"), n) for n in range(3)]
    for till in tills:
        assert await till.call(Till.added, 10) >= 10
        await till.hold()
    id, outcome = await carried_out(engine, "edit-fields", "kind = Till", value={"total": 99})
    assert outcome.done == 3
    await tills[0].edit_fields(total=55, who="bob")
    outcome = await (await engine.operations.undo(id)).result(LIMIT)
    assert outcome.done == 2 and sum(outcome.left_out.values()) == 1
    for till, total in zip(tills, (55, 11, 12), strict=True):
        await till.resume()
        assert await till.call(Till.added, 0) == total


async def test_edited_attributes_get_their_old_values_if_nothing_has_happened_since(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[approval])
    handles = [await engine.start(approval.options(attributes={"stage": str(number)}), number) for number in range(3)]
    for handle in handles:
        await until_row(engine, handle.id, lambda row: row.awaiting == "signal approved" and row.owner is None)
    id, outcome = await carried_out(engine, "edit-attributes", "kind = approval", value={"stage": "late", "late": True})
    assert outcome.done == 3 and len(await engine.list(Search(attributes=(("stage", '"late"'),)))) == 3
    await handles[0].edit_attributes(stage="never")
    outcome = await (await engine.operations.undo(id)).result(LIMIT)
    assert outcome.done == 2 and sum(outcome.left_out.values()) == 1
    seen = [(await handle.status()).attributes for handle in handles]
    assert seen == [{"stage": "never", "late": True}, {"stage": "1"}, {"stage": "2"}]


async def test_what_cannot_be_taken_back_is_said_for_each_verb(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    id, outcome = await carried_out(engine, "retry", FAILED)
    assert outcome.done == 3
    preview = await engine.operations.preview_undo(id)
    [(why, number)] = preview.left_out.items()
    assert (preview.would, number) == (0, 3) and "has gone on since" in why
    with pytest.raises(IllegalMove, match="'retry' cannot be taken back: it has gone on since"):
        await engine.operations.undo(id)
    assert all((verb in HAVE_INVERSE) is not bool(no_inverse(verb)) for verb in VERBS)


async def test_only_an_operation_that_has_ended_is_taken_back(opened: Open) -> None:
    engine = await delayed(opened, 1)
    operation = await engine.operations.start("hold", WAITING, watch=3600)
    with pytest.raises(IllegalMove, match="abort it first"):
        await engine.operations.undo(operation.id)
    with pytest.raises(InvalidInput, match="is no operation"):
        await engine.operations.undo((await engine.handle(bank.payment, "A-0")).id)
    with pytest.raises(ProcessNotFound):
        await engine.operations.preview_undo("0192f0c1-2b3c-7def-8123-456789abcdef")
    await operation.abort("enough")
    assert (await operation.result(LIMIT)).phase == "aborted"
    undo = await (await engine.operations.undo(operation.id)).result(LIMIT)
    assert undo.seen == undo.planned and Status.HELD.value not in await statuses(engine)


@pytest.mark.parametrize("verb", ["terminate", "fail"])
async def test_an_operation_whose_process_was_ended_has_ended_and_is_taken_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(operation_machine, "PORTION", 2)
    engine, _ = await opened(work=True, workflows=[approval])
    for number in range(5):
        await engine.start(approval, number)
    operation = await engine.operations.start("hold", "kind = approval", rate=0.1)
    await until_row(engine, operation.id, lambda row: b'"done":1' in (row.state or b""))
    await operation.pause("lunch")
    await getattr(engine.process(operation.id), verb)(who="ann", why="the wrong five")
    why = {"terminate": "been cancelled: terminated by ann", "fail": "failed: marked as failed by ann"}[verb]
    ended = OperationStatus("aborted", 1, planned=5, stopped=f"its process has {why} because: the wrong five")
    assert await operation.status() == ended and await engine.operations.list() == [(operation.id, ended)]
    assert (await engine.operations.preview_undo(operation.id)).would == 1
    assert await statuses(engine, "approval") == {"running": 4, "held": 1}
    undo = await (await engine.operations.undo(operation.id, who="ann")).result(LIMIT)
    assert (undo.done, undo.planned) == (1, 1) and await statuses(engine, "approval") == {"running": 5}


async def test_an_operation_that_was_ended_before_it_began_has_nothing_to_take_back(opened: Open) -> None:
    client, _ = await opened(workflows=[])
    operation = await client.operations.start("hold", "kind = approval")
    await client.process(operation.id).terminate(who="ann")
    stopped = "its process has been cancelled: terminated by ann"
    assert await operation.status() == OperationStatus("aborted", stopped=stopped)
    assert await client.operations.preview_undo(operation.id) == replace(
        await client.operations.preview("hold", "key = nobody"), seconds=0.0
    )


async def test_an_undo_keeps_to_its_rate_and_stops_within_a_portion_of_what_it_takes_back(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[approval])
    for number in range(4):
        await engine.start(approval, number)
    id, outcome = await carried_out(engine, "hold", "kind = approval")
    assert outcome.done == 4, "in one portion"
    undo = await engine.operations.undo(id, rate=0.01)
    await until_row(engine, undo.id, lambda row: b'"done":0' not in (row.state or b'"done":0'))
    await undo.pause("lunch")
    assert await statuses(engine, "approval") == {"running": 1, "held": 3}
    await undo.resume()
    await until_row(engine, undo.id, lambda row: b'"done":2' in (row.state or b""))
    await undo.abort("enough")
    assert await statuses(engine, "approval") == {"running": 2, "held": 2}


@pytest.mark.parametrize("live", [0.0, 0.001])
async def test_an_undo_goes_through_portions_in_parts_and_leaves_nobody_out(
    opened: Open, monkeypatch: pytest.MonkeyPatch, live: float
) -> None:
    monkeypatch.setattr(operation_machine, "PORTION", 3)
    engine, _ = await opened(work=True, workflows=[approval])
    every = {(await engine.start(approval, number)).id for number in range(7)}
    id, outcome = await carried_out(engine, "hold", "kind = approval", live=live)
    assert outcome.done == 7
    plan, window = OperationPlan("undo", "", undoes=id, undoes_verb="hold"), Window(await engine.store.now())
    parts, before = list[list[str]](), None
    while not parts or before is not None:
        chosen = await engine.operations.select(plan, "undo", window, before, 2)
        parts, before = [*parts, chosen.processes], chosen.before
    assert [len(part) for part in parts] == [2, 1, 2, 1, 1, 0]
    assert {process for part in parts for process in part} == every
    whole = await engine.operations.select(plan, "undo", window, None, 9)
    assert whole.before is not None and whole.before.count(":") == 1
