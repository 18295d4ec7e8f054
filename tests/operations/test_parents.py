"""Children and queued steps whose parents were told of their end: an operation retries the parent, and not both."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure import Engine, ProcessFailed, Retry, attempt, limits, machine, receive, step, workflow
from perdure.authoring.operation.plan import OperationPlan
from perdure.client.decision import Decision
from perdure.client.operation_verb import VERBS, Means, command_of
from perdure.client.parents import TOLD
from perdure.client.portion import BEFORE
from perdure.errors import IllegalMove
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import id_text
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.transition import Sender
from perdure.store.base import Search as Rows
from tests.operations import bank
from tests.operations.test_operations import after_an_outage
from tests.runtime.conftest import LIMIT, Open, until_row

FAILED = "error = ConnectionError"
ALIKE = "error in (ConnectionError, ProcessFailed)"
"""Finds parents too: one that fails by a queued step has the error of that, one that fails by a child another one."""
HELD_OR_FAILED = "kind = patient and status in (held, failed)"
SETTINGS: dict[str, dict[str, Any]] = {
    "restart-from": {"step": "charge"},
    "set-result": {"step": "charge", "value": "by hand"},
    "skip": {"step": "charge"},
    "edit-input": {"value": ["B"], "restart": True},
    "edit-attributes": {"value": {"late": True}},
    "edit-fields": {"value": {"failed": 0}},
    "move": {"value": "2"},
    "set-priority": {"value": 1},
    "set-deadline": {"value": "none"},
}
keys: list[str] = []
"""The idempotency keys under which the queued step was tried."""


@pytest.fixture(autouse=True)
def _not_tried() -> None:
    keys.clear()


@step(name="operations/withdraw", queue="operations", retry=Retry.NONE)
async def withdraw(order: str) -> str:
    keys.append(attempt().idempotency_key)
    return await bank.charge.function(order)


@workflow
async def withdrawal(order: str) -> str:
    return await withdraw(order)


@workflow
async def purchase(order: str) -> str:
    return await bank.payment.child(order)


@workflow
async def loose_purchase(order: str) -> str:
    """It waits for a payment that would go on without it."""
    return await bank.payment.child.options(on_parent_end="abandon")(order)


@workflow
async def purchases(orders: list[str]) -> None:
    await asyncio.gather(*map(bank.payment.child, orders), return_exceptions=True)


@workflow
async def patient(order: str) -> str:
    """It pays when it is told to."""
    await receive("go")
    return await bank.payment(order)


@workflow
async def patience(order: str) -> str:
    return await patient.child(order)


@workflow
async def notice(orders: list[str]) -> None:
    """Begin payments that go their own way."""
    for order in orders:
        bank.payment.child.options(on_parent_end="abandon")(order)


class Clerk(machine.Machine):
    """It begins payments, and copes with those that fail."""

    failed: int = 0

    @machine.init
    def hired(self) -> None:
        """It begins with nothing."""

    @machine.call
    async def pay(self, order: str) -> int:
        """Pay an order by a child; how many have failed by now."""
        try:
            await bank.payment.child(order)
        except ProcessFailed:
            self.failed += 1
        return self.failed


HERE = [withdrawal, purchase, loose_purchase, purchases, notice, patience, patient, bank.payment, Clerk.hired]


async def begun(opened: Open, code: Any) -> tuple[Engine, Process, Process]:
    """A process of that code, and the one that it has begun, which has failed while the bank was down."""
    engine, _ = await opened(work=True, workflows=HERE)
    handle = await engine.start(code, ["A"] if code is notice else "A")
    if code is notice:
        await handle.result(LIMIT)
    else:
        with pytest.raises(ProcessFailed):
            await handle.result(LIMIT)
    child = await ended_child(engine, handle.id)
    bank.down.clear()
    return engine, await engine.row(handle.id), child


async def children(engine: Engine, parent: str) -> list[Process]:
    """What this process has begun, the newest first."""
    rows = await engine.store.search(Rows(tasks=True))
    return [row for row in rows if row.parent is not None and id_text(row.parent) == parent]


async def ended_child(engine: Engine, parent: str) -> Process:
    [child] = await children(engine, parent)
    return await until_row(engine, id_text(child.id), lambda row: row.final)


@pytest.mark.parametrize(
    "code", [withdrawal, purchase, loose_purchase], ids=["a queued step", "a child", "an abandoned child"]
)
async def test_of_a_parent_and_what_has_failed_in_it_the_parent_alone_is_retried(opened: Open, code: Any) -> None:
    engine, parent, child = await begun(opened, code)
    preview = await engine.operations.preview("retry", ALIKE)
    assert (preview.would, preview.sample, preview.left_out) == (1, [id_text(parent.id)], {TOLD: 1})
    outcome = await (await engine.operations.start("retry", ALIKE, watch=0)).result(LIMIT)
    assert (outcome.done, outcome.left_out, outcome.planned, outcome.seen) == (1, {TOLD: 1}, 2, 2)
    assert await engine.process(id_text(parent.id), str).result(LIMIT) == "A"
    assert bank.charged == {"A": 2}, "once in vain, and once for good"
    fresh, old = await children(engine, id_text(parent.id))
    assert (fresh.status, old.status, old.id, old.run) == (Status.COMPLETED, Status.FAILED, child.id, 1)
    if code is withdrawal:
        assert keys[1:] == [json.decode(fresh.input)["key"]]
    again = await engine.operations.preview("retry", ALIKE)
    assert (again.would, again.left_out) == (0, {TOLD: 1}), "its parent has begun another one"
    await engine.process(id_text(old.id)).retry()
    await until_row(engine, id_text(old.id), lambda row: row.status is Status.COMPLETED)


async def test_a_child_that_goes_its_own_way_is_retried_although_its_parent_has_ended(opened: Open) -> None:
    engine, parent, child = await begun(opened, notice)
    assert parent.status is Status.COMPLETED
    outcome = await (await engine.operations.start("retry", FAILED, watch=0)).result(LIMIT)
    assert (outcome.done, outcome.left_out) == (1, {})
    assert await engine.process(id_text(child.id), str).result(LIMIT) == "A"


async def test_a_child_whose_parent_was_removed_is_retried(opened: Open) -> None:
    engine, parent, child = await begun(opened, purchase)
    await engine.process(id_text(parent.id)).remove()
    outcome = await (await engine.operations.start("retry", FAILED, watch=0)).result(LIMIT)
    assert (outcome.done, outcome.left_out) == (1, {})
    assert await engine.process(id_text(child.id), str).result(LIMIT) == "A"


async def test_a_child_that_a_machine_has_forgotten_is_retried(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = await opened(work=True, workflows=HERE)
    handle = await engine.start(Clerk.hired)
    assert await handle.call(Clerk.pay, "A") == 1
    await ended_child(engine, handle.id)
    assert (await engine.operations.preview("retry", FAILED)).left_out == {TOLD: 1}
    monkeypatch.setattr(limits, "FOLDED_TURNS", 1)
    bank.down.clear()
    assert await handle.call(Clerk.pay, "B") == 1
    await until_row(engine, handle.id, lambda row: row.run > 1)
    preview = await engine.operations.preview("retry", FAILED)
    assert (preview.would, preview.left_out) == (1, {})


@pytest.mark.parametrize("verb", [verb for verb in VERBS if VERBS[verb].reopens])
async def test_no_command_lets_a_child_run_again_whose_parent_was_told(opened: Open, verb: str) -> None:
    engine, _, child = await begun(opened, purchase)
    preview = await engine.operations.preview(verb, f"id = {id_text(child.id)}", **SETTINGS.get(verb, {}))
    assert (preview.would, preview.left_out) == (0, {TOLD: 1})


@pytest.mark.parametrize("status", sorted(FINAL))
async def test_a_verb_says_what_it_lets_run_again_of_all_that_has_ended(opened: Open, status: Status) -> None:
    engine = await after_an_outage(opened, 1)
    [failed] = await engine.store.search(Rows(kind="payment"))
    history, row = await engine.store.history(failed.id, failed.run), replace(failed, status=status)
    means = Means(engine.parts.registry, engine.parts.machine.random)
    run_again = set()
    for verb in VERBS:
        plan = OperationPlan(verb, "all", **{"step": "charge", "method": "corrected", **SETTINGS.get(verb, {})})
        command = command_of(plan, Sender(), means)
        with suppress(IllegalMove):
            if isinstance(command, Decision) and not command.decide(row, history, row.changed_at).after.final:
                run_again.add(verb)
    assert run_again == {verb for verb in VERBS if status in VERBS[verb].reopens}


async def test_each_parent_is_read_once_for_all_its_children_and_none_for_queued_steps(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HERE)
    await (await engine.start(purchases, ["A", "B", "C"])).result(LIMIT)
    with pytest.raises(ProcessFailed):
        await (await engine.start(withdrawal, "D")).result(LIMIT)
    client, store = await opened()
    for kind, number, reads in (("payment", 3, (2, 1)), ("@operations", 1, (1, 0))):
        store.calls.clear()
        preview = await client.operations.preview("retry", f"kind = {kind} and status = failed")
        assert preview.left_out == {TOLD: number}
        names = Counter(name for name, _ in store.calls)
        assert (names["search"], names["history"], names["histories"]) == (*reads, 0)


async def test_a_record_of_a_child_that_is_damaged_leaves_out_that_child_alone(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, store = await opened(work=True, workflows=HERE)
    handle = await engine.start(notice, ["A", "B"])
    await handle.result(LIMIT)
    for child in await children(engine, handle.id):
        await until_row(engine, id_text(child.id), lambda row: row.final)
    read = store.history

    async def damaged(*which: Any, **how: Any) -> list[Event]:
        events = await read(*which, **how)
        if how.get("types") != (EventType.CHILD_STARTED,):
            return events
        return [replace(event, payload=b'{"id":"none"}') if event.number == 1 else event for event in events]

    monkeypatch.setattr(store, "history", damaged)
    preview = await engine.operations.preview("retry", FAILED)
    assert (preview.would, preview.left_out) == (1, {TOLD: 1})


async def test_what_the_operation_itself_has_commanded_before_counts_as_that(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=HERE)
    parent = await engine.start(patience, "A")
    await until_row(engine, parent.id, lambda row: row.awaiting is not None and row.owner is None)
    [child] = await children(engine, parent.id)
    handle = engine.process(id_text(child.id))
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    await handle.hold()
    operation = await engine.operations.start("retry", HELD_OR_FAILED, live=3600, watch=0.05)
    await until_row(engine, handle.id, lambda row: row.status is Status.RUNNING)
    await handle.signal("go")
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    await until_row(engine, operation.id, lambda row: BEFORE in str(row.state) or TOLD in str(row.state))
    outcome = await operation.status()
    assert (outcome.done, outcome.left_out) == (1, {BEFORE: 1})
