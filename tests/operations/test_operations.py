"""One command for many processes: what it would do, what it has done, once each, and what stops it."""

from __future__ import annotations

import pytest

from perdure import Engine, ProcessFailed, Search, testing
from perdure.authoring.operation import machine
from perdure.authoring.operation.plan import Window
from perdure.errors import CallRefused, CallUnanswered, IllegalMove, InvalidInput
from tests.operations import bank
from tests.runtime.conftest import LIMIT, Open, until_row

FAILED = "kind = payment and error = ConnectionError"


async def after_an_outage(opened: Open, many: int) -> Engine:
    """Payments A-0, A-1, … that have failed while the bank was down, which is back now."""
    engine, _ = await opened(work=True, workflows=[bank])
    handles = await engine.start_many(
        bank.payment, [(f"A-{n}",) for n in range(many)], keys=[f"A-{n}" for n in range(many)]
    )
    for handle in handles:
        with pytest.raises(ProcessFailed):
            await handle.result(LIMIT)
    bank.down.clear()
    return engine


async def statuses(engine: Engine) -> dict[str, int]:
    return (await engine.count(Search(kind="payment")))["payment"]


async def test_all_that_fit_are_commanded_once_and_counted(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PORTION", 4)
    engine = await after_an_outage(opened, 10)
    preview = await engine.operations.preview("retry", FAILED)
    assert (preview.would, preview.left_out, len(preview.sample)) == (10, {}, 10)
    assert await statuses(engine) == {"failed": 10}, "nothing was written"
    operation = await engine.operations.start("retry", FAILED, watch=0, who="ann", why="the bank is back")
    outcome = await operation.result(LIMIT)
    assert (outcome.phase, outcome.done, outcome.relapsed, outcome.left_out) == ("done", 10, 0, {})
    for n in range(10):
        handle = await engine.handle(bank.payment, f"A-{n}")
        assert await handle.result(LIMIT) == f"A-{n}"
        assert bank.charged[f"A-{n}"] == 2
    [(id, listed)] = await engine.operations.list()
    assert id == operation.id and listed.done == 10
    assert await operation.status() == outcome


async def test_what_comes_back_is_counted_and_not_commanded_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PORTION", 2)
    engine = await after_an_outage(opened, 6)
    bank.never |= {"A-1", "A-4"}
    operation = await engine.operations.start("retry", FAILED, watch=0.3)
    outcome = await operation.result(LIMIT)
    assert (outcome.done, outcome.relapsed) == (6, 2)
    assert set(bank.charged.values()) == {2}


async def test_a_canary_that_relapses_stops_it_until_it_is_resumed(opened: Open) -> None:
    engine = await after_an_outage(opened, 8)
    bank.down.set()
    operation = await engine.operations.start("retry", FAILED, canary=3, watch=0.2)
    await until_row(engine, operation.id, lambda row: b'"stopped":"3 of 3' in (row.state or b""))
    assert sum(bank.charged.values()) == 8 + 3
    bank.down.clear()
    await operation.resume()
    outcome = await operation.result(LIMIT)
    assert (outcome.phase, outcome.done, outcome.relapsed) == ("done", 8, 3)
    assert await statuses(engine) == {"completed": 5, "failed": 3}


async def test_a_canary_that_does_well_lets_the_others_follow(opened: Open) -> None:
    engine = await after_an_outage(opened, 8)
    outcome = await (await engine.operations.start("retry", FAILED, canary=2, watch=0.1)).result(LIMIT)
    assert (outcome.phase, outcome.done, outcome.relapsed) == ("done", 8, 0)


async def test_a_canary_goes_no_faster_than_the_rate(opened: Open) -> None:
    engine = await after_an_outage(opened, 5)
    operation = await engine.operations.start("retry", FAILED, canary=3, rate=0.01)
    await until_row(engine, operation.id, lambda row: b'"before":"' in (row.state or b"") and row.owner is None)
    status = await operation.status()
    assert (status.phase, status.done) == ("canary", 1)
    await operation.abort("enough")


async def test_a_canary_that_takes_several_portions_is_watched_once_it_is_complete() -> None:
    async with testing.engine(workflows=[bank]) as engine:
        await engine.start_many(bank.payment, [(f"A-{n}",) for n in range(4)])
        await engine.sleep(1)
        bank.down.clear()
        operation = await engine.operations.start("retry", FAILED, canary=2, rate=0.02, watch=1)
        seen = []
        for seconds in (25, 50, 50):
            await engine.sleep(seconds)
            seen.append(await operation.status())
        assert [(one.phase, one.done) for one in seen] == [("canary", 1), ("watching the canary", 2), ("running", 3)]
        assert (await operation.result()).done == 4


@pytest.mark.parametrize(("verb", "left"), [("restart", "completed"), ("terminate", "cancelled"), ("fail", "failed")])
async def test_what_only_fits_the_query_still_has_not_relapsed(opened: Open, verb: str, left: str) -> None:
    engine, _ = await opened(work=True, workflows=[bank])
    bank.down.clear()
    for n in range(3):
        handle = await engine.start(
            bank.payment.options(key=f"A-{n}", delay=None if verb == "restart" else 3600), f"A-{n}"
        )
        if verb == "restart":
            await handle.result(LIMIT)
    operation = await engine.operations.start(verb, "kind = payment", canary=1, watch=0)
    outcome = await operation.result(LIMIT)
    assert (outcome.phase, outcome.done, outcome.relapsed) == ("done", 3, 0)
    while await statuses(engine) != {left: 3}:
        await engine.list()


async def test_it_is_paused_resumed_and_aborted(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PORTION", 1)
    engine = await after_an_outage(opened, 5)
    operation = await engine.operations.start("retry", FAILED, rate=0.01)
    await until_row(engine, operation.id, lambda row: b'"done":1' in (row.state or b""))
    await operation.pause("lunch")
    assert (await operation.status()).paused == "lunch"
    await operation.resume()
    await until_row(engine, operation.id, lambda row: b'"done":2' in (row.state or b""))
    await operation.abort("enough")
    outcome = await operation.result(LIMIT)
    assert (outcome.phase, outcome.stopped, outcome.done) == ("aborted", "enough", 2)
    for one in await engine.list(where="kind = payment and status = running"):  # an aborted one waits for nobody
        await engine.process(one.id).result(LIMIT)
    assert await statuses(engine) == {"completed": 2, "failed": 3}
    with pytest.raises((IllegalMove, CallRefused, CallUnanswered)):
        await operation.pause()


async def test_what_does_not_fit_the_command_is_left_out_and_said_so(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    preview = await engine.operations.preview("resume", "kind = payment")
    assert preview.would == 0 and sum(preview.left_out.values()) == 3
    [why] = preview.left_out
    outcome = await (await engine.operations.start("resume", "kind = payment", watch=0)).result(LIMIT)
    assert (outcome.done, outcome.left_out) == (0, {why: 3})


async def test_what_has_changed_since_is_left_alone(opened: Open) -> None:
    engine = await after_an_outage(opened, 3)
    frozen = await engine.store.now()
    plan = machine.OperationPlan("retry", FAILED)
    handle = await engine.handle(bank.payment, "A-1")
    bank.never.add("A-1")
    await handle.retry(who="bob")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    every = [view.id for view in await engine.list(Search(kind="payment"))]
    window = Window(frozen)
    carried = await engine.operations.carry_out(plan, "one", window, every)
    assert (carried.done, carried.left_out) == (2, {"it has changed since the operation began": 1})
    again = await engine.operations.carry_out(plan, "one", window, every)
    assert again == carried, "a portion whose worker died counts what it had done, and does it no second time"
    assert (
        bank.charged["A-1"] == 2 and len((await engine.operations.select(plan, "one", window, None, 9)).processes) == 0
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"verb": "retyr"}, "Did you mean 'retry'"),
        ({"verb": "skip"}, "needs a step"),
        ({"step": "charge"}, "takes no step"),
        ({"where": " "}, "needs a query"),
        ({"where": "stats = failed"}, "there is no field"),
        ({"rate": 0}, "is not processes a second"),
        ({"canary": -1}, "not a number of processes"),
        ({"stop_at": 2}, "not a share"),
        ({"watch": -1}, "not seconds"),
    ],
)
async def test_a_plan_that_cannot_be_meant_is_refused(opened: Open, given: dict[str, object], says: str) -> None:
    engine, _ = await opened()
    plan: dict[str, object] = {"verb": "retry", "where": "status = failed", **given}
    with pytest.raises(InvalidInput, match=says):
        await engine.operations.start(**plan)  # type: ignore[arg-type]


async def test_the_handle_of_an_operation_leaves_any_other_process_alone(opened: Open) -> None:
    engine, _ = await opened(workflows=[bank])
    payment = await engine.start(bank.payment.options(delay=3600), "A-1")
    other = engine.operations.handle(payment.id)
    for verb in (other.status, other.pause, other.resume, other.abort, other.result):
        with pytest.raises(InvalidInput, match="is no operation, its kind is payment; `perdure operation ls`"):
            await verb()
    assert (await engine.row(payment.id)).inbox == 0, "nothing was sent"
