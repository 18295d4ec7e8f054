"""The canary of an operation: so many processes that were commanded, however many others were looked at before them."""

from __future__ import annotations

import pytest

from perdure import Search, testing
from perdure.authoring.operation import machine
from tests.operations import bank
from tests.operations.test_operations import FAILED, statuses

PAYMENTS = "kind = payment"


async def fail(engine: testing.SkippingEngine, many: int) -> None:
    """So many payments that fail, while the bank is down."""
    await engine.start_many(bank.payment, [(f"A-{n}",) for n in range(many)])
    await engine.sleep(1)


async def wait(engine: testing.SkippingEngine, many: int) -> None:
    """So many payments that wait for their time, so that no retry fits them."""
    for n in range(many):
        await engine.start(bank.payment.options(key=f"later {n}", delay=10**6), f"later {n}")


@pytest.mark.parametrize(("waiting", "portion"), [(3, 1_000), (2, 1_000), (2, 1)])
async def test_a_canary_counts_what_was_commanded_and_not_what_was_only_looked_at(
    monkeypatch: pytest.MonkeyPatch, waiting: int, portion: int
) -> None:
    monkeypatch.setattr(machine, "PORTION", portion)
    async with testing.engine(workflows=[bank]) as engine:
        await fail(engine, 5)
        await wait(engine, waiting)
        operation = await engine.operations.start("retry", PAYMENTS, canary=3, watch=10)
        await engine.sleep(60)
        stopped = await operation.status()
        assert stopped.stopped == "3 of 3 processes of the canary have relapsed"
        assert (stopped.done, stopped.relapsed, sum(stopped.left_out.values())) == (3, 3, waiting)
        failed = [view for view in await engine.list(Search(kind="payment")) if view.status == "failed"]
        assert sorted(view.run for view in failed) == [1, 1, 2, 2, 2]
        bank.down.clear()
        await operation.resume()
        outcome = await operation.result()
        assert (outcome.phase, outcome.done, outcome.seen, outcome.planned) == ("done", 5, 5 + waiting, 5 + waiting)


async def test_an_operation_whose_canary_finds_nobody_ends_without_one() -> None:
    async with testing.engine(workflows=[bank]) as engine:
        await wait(engine, 3)
        outcome = await (await engine.operations.start("retry", PAYMENTS, canary=2, watch=10)).result()
        assert (outcome.phase, outcome.done, outcome.seen, outcome.planned) == ("done", 0, 3, 3)


@pytest.mark.parametrize("waiting", [0, 3])
async def test_what_comes_to_fit_a_live_operation_later_is_its_canary_first(waiting: int) -> None:
    async with testing.engine(workflows=[bank]) as engine:
        await wait(engine, waiting)
        operation = await engine.operations.start("retry", PAYMENTS, canary=2, watch=10, live=3600)
        await engine.sleep(60)
        assert (await operation.status()).phase == "canary"
        await fail(engine, 5)
        await engine.sleep(60)
        stopped = await operation.status()
        assert stopped.stopped == "2 of 2 processes of the canary have relapsed"
        assert (stopped.done, await statuses(engine)) == (2, {"failed": 5, **({"running": 3} if waiting else {})})


async def test_a_live_operation_goes_on_once_its_canary_did_well() -> None:
    async with testing.engine(workflows=[bank]) as engine:
        operation = await engine.operations.start("retry", FAILED, canary=2, watch=10, live=100)
        await engine.sleep(30)
        await fail(engine, 5)
        bank.down.clear()
        outcome = await operation.result()
        assert (outcome.phase, outcome.done, outcome.relapsed, outcome.seen) == ("done", 5, 0, outcome.planned)


async def test_a_canary_of_none_that_a_release_before_has_watched_begins_again() -> None:
    async with testing.engine(workflows=[bank]) as engine:
        await fail(engine, 3)
        await wait(engine, 1)
        operation = await engine.operations.start("retry", PAYMENTS, canary=1, watch=10, rate=0.01)
        await engine.sleep(10)
        process = engine.process(operation.id)
        await process.hold()
        await process.edit_fields(phase="watching the canary", in_canary=1)
        await process.resume()
        await engine.sleep(1000)
        stopped = await operation.status()
        assert (stopped.done, stopped.stopped) == (1, "1 of 1 processes of the canary have relapsed")
