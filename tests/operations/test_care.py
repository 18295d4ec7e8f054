"""How carefully an operation goes: what stops it, which goes first, what comes to fit later, and what it will cost."""

from __future__ import annotations

import pytest

from perdure import Search, machine
from perdure.authoring.operation import machine as operation_machine
from perdure.authoring.operation.plan import Window
from perdure.errors import InvalidInput, StoreUnavailable
from tests.operations import bank
from tests.operations.test_operations import FAILED, after_an_outage, statuses
from tests.runtime.conftest import LIMIT, Open, until_row


class Drawer(machine.Machine):
    """A drawer that breaks when it is told to, and can be repaired with another sum."""

    sum: int = 0

    @machine.init
    def opened(self, sum: int) -> None:
        """It begins with so much."""
        self.sum = sum

    @machine.signal
    def spoil(self) -> None:
        """Break."""
        raise ValueError("the drawer is stuck")

    @machine.repair
    def corrected(self, sum: int) -> None:
        """Another sum."""
        self.sum = sum

    @machine.call
    def told(self) -> int:
        """Its sum."""
        return self.sum


async def test_it_stops_at_so_many_relapses_and_goes_on_when_it_is_resumed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_machine, "PORTION", 2)
    engine = await after_an_outage(opened, 8)
    bank.down.set()
    operation = await engine.operations.start("retry", FAILED, rate=10, stop_after_failures=2, watch=0)
    await until_row(engine, operation.id, lambda row: b'"stopped":"' in (row.state or b"") and not row.owner)
    stopped = await operation.status()
    assert stopped.phase == "stopped" and "processes have relapsed and 0 could not be commanded" in stopped.stopped
    assert 2 <= stopped.done < 8 and stopped.planned == 8
    bank.down.clear()
    await operation.resume()
    outcome = await operation.result(LIMIT)
    assert (outcome.phase, outcome.done, outcome.seen) == ("done", 8, 8)
    assert await statuses(engine) == {"completed": 8 - outcome.relapsed, "failed": outcome.relapsed}


async def test_it_stops_if_too_large_a_share_has_relapsed(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_machine, "PORTION", 2)
    engine = await after_an_outage(opened, 8)
    bank.down.set()
    operation = await engine.operations.start("retry", FAILED, rate=10, stop_when_relapsed=0.3, watch=0)
    await until_row(engine, operation.id, lambda row: b'"stopped":"' in (row.state or b"") and not row.owner)
    assert "processes have relapsed" in (await operation.status()).stopped
    await operation.abort("enough")
    assert (await operation.result(LIMIT)).done < 8


async def test_a_command_that_cannot_be_carried_out_counts_as_failed_and_not_as_left_out(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    settings = {"value": {"amount": 1}, "restart": True, "stop_after_failures": 1}
    operation = await engine.operations.start("edit-input", FAILED, watch=0, **settings)
    outcome = await operation.result(LIMIT)
    assert (outcome.done, outcome.left_out, sum(outcome.failed.values()), outcome.seen) == (0, {}, 3, outcome.planned)


async def test_a_store_that_is_away_for_a_moment_leaves_nothing_out(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    client, store = await opened()
    every = [view.id for view in await engine.list(Search(kind="payment"))]
    window = Window(await engine.store.now())
    plan = operation_machine.OperationPlan("retry", FAILED)

    async def away(door: str, argument: object) -> None:
        if door == "histories":
            raise StoreUnavailable("the store is away for a moment")

    before, store.before = store.before, away
    with pytest.raises(StoreUnavailable):
        await client.operations.carry_out(plan, "one", window, every)
    store.before = before
    carried = await client.operations.carry_out(plan, "one", window, every)
    assert (carried.done, carried.left_out, carried.failed) == (3, {}, {})


async def test_of_two_operations_the_more_urgent_one_goes_first(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_machine, "PORTION", 1)
    monkeypatch.setattr(operation_machine, "WAIT_SECONDS", 0.05)
    engine, _ = await opened()
    for kind in ("later", "sooner"):
        for n in range(4):
            await engine.start(bank.payment.options(key=f"{kind} {n}", delay=3600), "A")
    later = await engine.operations.start("hold", "key = later*", priority=6, watch=0)
    sooner = await engine.operations.start("hold", "key = sooner*", priority=2, watch=0)
    plan = operation_machine.OperationPlan("hold", "key = later*", priority=6)
    chosen = await engine.operations.select(plan, later.id, Window(await engine.store.now()), None, 1)
    assert chosen.processes == [] and chosen.waits.startswith(f"operation {sooner.id} goes first")
    worker, _ = await opened(work=True, workflows=[bank])
    assert (await later.result(LIMIT)).done == (await sooner.result(LIMIT)).done == 4
    rows = await worker.store.search(Search(kind="payment"))
    times = {kind: [row.changed_at for row in rows if str(row.key).startswith(kind)] for kind in ("later", "sooner")}
    assert max(times["sooner"]) < min(times["later"])


async def test_the_most_urgent_of_very_many_operations_goes_first(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("operation_orders", "finding.finder"):
        monkeypatch.setattr(f"perdure.client.{module}.LIST_ROWS", 2)
    engine, _ = await opened()
    oldest = await engine.operations.start("hold", "key = A", priority=2, watch=0)
    others = [await engine.operations.start("hold", "key = A", priority=6, watch=0) for _ in range(3)]
    plan = operation_machine.OperationPlan("hold", "key = A", priority=6)
    chosen = await engine.operations.select(plan, others[-1].id, Window(await engine.store.now()), None, 1)
    assert chosen.waits.startswith(f"operation {oldest.id} goes first")


async def test_a_live_one_takes_what_comes_to_fit_and_nothing_twice(opened: Open) -> None:
    engine = await after_an_outage(opened, 2)
    bank.never |= {"A-0"}
    operation = await engine.operations.start("retry", FAILED, live=3600, watch=0.05)
    await until_row(engine, operation.id, lambda row: b'"done":2' in (row.state or b""))
    bank.never |= {"B-1"}
    fresh = await engine.start(bank.payment.options(key="B-1"), "B-1")
    await until_row(engine, fresh.id, lambda row: row.run == 2 and row.status == "failed")
    await until_row(engine, operation.id, lambda row: b"it was commanded before" in (row.state or b""))
    await operation.abort("enough")
    outcome = await operation.result(LIMIT)
    assert outcome.done == 3 and bank.charged["A-0"] == bank.charged["B-1"] == 2


async def test_a_preview_says_what_would_run_again_who_would_be_told_and_how_long_it_takes(opened: Open) -> None:
    engine = await after_an_outage(opened, 4)
    assert (await engine.operations.preview("retry", FAILED, rate=2)).seconds == 2.0
    for view in await engine.list(Search(kind="payment")):
        await engine.process(view.id).retry()
        await engine.process(view.id).result(LIMIT)
    preview = await engine.operations.preview("restart", "kind = payment")
    assert (preview.would, preview.repeated) == (4, 4) and preview.seconds > 0
    assert await statuses(engine) == {"completed": 4}


async def test_machines_are_repaired_with_arguments(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[Drawer])
    drawers = [await engine.start(Drawer.opened.options(key=f"{n}"), n) for n in range(3)]
    for drawer in drawers:
        await drawer.signal(Drawer.spoil)
        await until_row(engine, drawer.id, lambda row: row.status == "broken")
    preview = await engine.operations.preview("repair", "kind = Drawer", method="corrected", value=[7])
    assert (preview.would, preview.left_out) == (3, {})
    operation = await engine.operations.start("repair", "status = broken", method="corrected", value=[7], watch=0)
    assert (await operation.result(LIMIT)).done == 3
    assert [await drawer.call(Drawer.told) for drawer in drawers] == [7, 7, 7]


async def test_failed_steps_get_a_result_and_inputs_are_edited(opened: Open) -> None:
    engine = await after_an_outage(opened, 2)
    bank.never |= {"A-0", "A-1"}
    given = await engine.operations.start("set-result", "key = A-0", step="charge", value="by hand", watch=0)
    assert (await given.result(LIMIT)).done == 1
    assert await (await engine.handle(bank.payment, "A-0")).result(LIMIT) == "by hand"
    edited = await engine.operations.start("edit-input", "key = A-1", value={"order": "B"}, restart=True, watch=0)
    assert (await edited.result(LIMIT)).done == 1
    assert await (await engine.handle(bank.payment, "A-1")).result(LIMIT) == "B"


async def test_what_has_ended_is_removed_and_a_preview_takes_nothing_away(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    for run in range(2):
        await (await engine.handle(bank.payment, "A-0")).restart()
        await until_row(engine, (await engine.handle(bank.payment, "A-0")).id, lambda row, run=run: row.run == run + 2)
        await (await engine.handle(bank.payment, "A-0")).result(LIMIT)
    first = await engine.handle(bank.payment, "A-0")
    assert (await engine.operations.preview("remove", "kind = payment")).would == 3
    assert await engine.store.history(first.id_bytes, 1), "the former runs are still there"
    waiting = await engine.start(bank.payment.options(key="B", delay=3600), "B")
    operation = await engine.operations.start("remove", "kind = payment", watch=0)
    outcome = await operation.result(LIMIT)
    assert (outcome.done, sum(outcome.left_out.values())) == (3, 1)
    forced = await engine.operations.start("remove", "kind = payment", force=True, watch=0)
    assert (await forced.result(LIMIT)).done == 1
    assert await engine.list(Search(kind="payment")) == [] and waiting.id
    gone = await engine.operations.carry_out(
        operation_machine.OperationPlan("remove", "kind = payment"), "one", Window(0), [waiting.id]
    )
    assert gone.done == 1, "a portion whose worker died after its commands counts them"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"verb": "repair"}, "needs a method"),
        ({"verb": "edit-input"}, "needs a value"),
        ({"verb": "edit-input", "value": 7}, "arguments"),
        ({"verb": "edit-fields", "value": [1]}, "needs fields"),
        ({"verb": "edit-attributes", "value": {}}, "no attribute is given"),
        ({"verb": "hold", "force": True}, "takes no force"),
        ({"verb": "hold", "restart": True}, "takes no restart"),
        ({"verb": "set-result", "step": "a", "value": object()}, "the value of the operation"),
        ({"stop_after_failures": -1}, "not a number of processes"),
        ({"stop_when_relapsed": 1.5}, "not a share"),
        ({"priority": 10}, "0 .first. to 9"),
        ({"live": -1}, "not seconds"),
    ],
)
async def test_a_setting_that_cannot_be_meant_is_refused(opened: Open, given: dict[str, object], says: str) -> None:
    engine, _ = await opened()
    plan: dict[str, object] = {"verb": "retry", "where": "status = failed", **given}
    with pytest.raises(InvalidInput, match=says):
        await engine.operations.start(**plan)  # type: ignore[arg-type]
