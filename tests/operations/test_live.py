"""A live operation: it commands what comes to fit later, and nothing twice, however far a process has come since."""

from __future__ import annotations

import pytest

from perdure import continue_as_new, receive, step, workflow
from perdure.authoring.operation.plan import OperationPlan, Window
from perdure.client import past_orders
from perdure.client.portion import BEFORE
from perdure.kernel.process import Status
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import Open, until_row

STEPS = past_orders.EVENTS + 20
RUNS = 25
HELD = "status = held"


@step
async def walked(number: int) -> int:
    return number


@workflow
async def walk() -> None:
    """As many steps as are looked at together, and more, before each of two waits."""
    for number in range(STEPS):
        await walked(number)
    await receive("go")
    for number in range(STEPS):
        await walked(number)
    await receive("end")


@workflow
async def wander(runs: int) -> None:
    """Many runs after a wait, and then another one."""
    if runs == RUNS:
        await receive("go")
    if runs:
        continue_as_new(runs - 1)
    await receive("end")


@pytest.mark.parametrize("restarted", [False, True], ids=["in this run", "in the run before"])
async def test_a_process_that_has_done_much_since_it_was_commanded_is_not_commanded_again(
    opened: Open, restarted: bool
) -> None:
    engine, _ = await opened(work=True, workflows=[walk])
    handle = await engine.start(walk)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    await handle.hold(who="ann")
    operation = await engine.operations.start("resume", HELD, live=3600, watch=0.05)
    await until_row(engine, handle.id, lambda row: row.status is Status.RUNNING)
    await handle.signal("go")
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal end" and row.owner is None)
    if restarted:
        await handle.restart(who="ann")
        await until_row(engine, handle.id, lambda row: row.awaiting == "signal end" and row.owner is None)
    await handle.hold(who="ann")
    await until_row(engine, operation.id, lambda row: BEFORE in str(row.state) or '"done":2' in str(row.state))
    outcome = await operation.status()
    assert (outcome.done, outcome.left_out) == (1, {BEFORE: 1})
    assert (await engine.row(handle.id)).status is Status.HELD


async def test_a_process_that_has_had_many_runs_since_it_was_commanded_is_not_commanded_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[wander])
    handle = await engine.start(wander, RUNS)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    await handle.hold(who="ann")
    operation = await engine.operations.start("resume", HELD, live=3600, watch=0.05)
    await until_row(engine, handle.id, lambda row: row.status is Status.RUNNING)
    await handle.signal("go")
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal end" and row.owner is None)
    await handle.hold(who="ann")
    await until_row(engine, operation.id, lambda row: BEFORE in str(row.state) or '"done":2' in str(row.state))
    outcome = await operation.status()
    assert (outcome.done, outcome.left_out) == (1, {BEFORE: 1})
    assert (await engine.row(handle.id)).status is Status.HELD


def histories(store: FaultyStore) -> int:
    return sum(name in ("history", "histories") for name, _ in store.calls)


async def test_of_a_long_past_before_the_operation_only_one_page_is_read(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_orders, "LAG_SECONDS", 0.0)
    engine, store = await opened(work=True, workflows=[walk])
    handle = await engine.start(walk)
    await handle.signal("go")
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal end" and row.owner is None)
    await handle.restart(who="ann")
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal end" and row.owner is None)
    await handle.hold(who="ann")
    operation = await engine.operations.start("hold", "kind = nothing")
    began = (await engine.row(operation.id)).created_at or 0
    store.calls.clear()
    plan, window = OperationPlan("resume", HELD), Window(await engine.store.now(), began)
    assert (await engine.operations.carry_out(plan, operation.id, window, [handle.id])).done == 1
    assert histories(store) == 2, "the first event, and the last page"
