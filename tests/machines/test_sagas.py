"""Sagas in the methods of machines: what a method has done stands when it has ended, in memory and after a reload."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Engine, Handle, StepError, flow, machine, saga, step
from perdure.errors import CallRefused, ProcessFailed
from perdure.kernel.process import Status
from tests.machines.account import done, paid, waits
from tests.runtime.conftest import LIMIT, Open, until, until_row


@step(permanent=OSError)
async def jam() -> None:
    """Fail."""
    raise OSError("no paper")


class Shop(machine.Machine):
    """A shop that buys, and may take back what it has paid."""

    bought: int = 0

    @machine.init
    def opened(self) -> None:
        pass

    @machine.call
    async def buy(self, what: str) -> int:
        """Pay in a saga that ends well."""
        async with saga():
            await paid(what)
        self.bought += 1
        return self.bought

    @machine.call
    async def buy_and_wait(self, what: str) -> int:
        """The same, and then wait for a gate."""
        await self.buy(what)
        await waits("delivery")
        return self.bought

    @machine.call
    async def print(self) -> str:
        """Pay in a saga that does not end well."""
        try:
            async with saga():
                await paid("paper")
                await jam()
        except StepError:
            return "undone"
        return "printed"

    @machine.call
    async def print_or_close(self) -> None:
        """The same, and fail if that has not ended well."""
        if await self.print() == "undone":
            self.close()

    @machine.call
    async def buy_openly(self, what: str) -> None:
        """Pay without a saga."""
        await paid(what)

    @machine.call
    def close(self) -> None:
        """The end, as a failure."""
        machine.fail(OSError("bankrupt"))


class Order(flow.Flow):
    """A flow that pays when it begins, and can only come to a failure."""

    paying = flow.State()
    refused = flow.State(terminal=True, failed=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def rejected(self) -> None:
        pass

    @flow.action
    async def pay(self) -> None:
        """Pay in a saga that ends well."""
        async with saga():
            await paid("rent")

    behaviour = flow.table(flow.on(begun).to(paying).do(pay), flow.on(rejected, in_=paying).to(refused))


async def with_shop(opened: Open) -> tuple[Engine, Handle[Any]]:
    """A worker with a shop."""
    engine, _ = await opened(work=True)
    return engine, await engine.start(Shop.opened)


async def loaded_anew(opened: Open, engine: Engine, handle: Handle[Any]) -> tuple[Engine, Handle[Any]]:
    """Another worker in place of this one, with the same process."""
    await engine.close(0)
    other, _ = await opened(work=True)
    return other, other.process(handle.id)


reloaded = pytest.mark.parametrize("reload", [False, True], ids=["in memory", "after a reload"])


@reloaded
async def test_a_saga_that_ended_well_is_not_undone_by_a_later_cancel(opened: Open, reload: bool) -> None:
    engine, shop = await with_shop(opened)
    assert await shop.call(Shop.buy, "ink") == 1
    if reload:
        engine, shop = await loaded_anew(opened, engine, shop)
    await shop.cancel()
    row = await until_row(engine, shop.id, lambda row: row.status is Status.CANCELLED)
    assert (done["paid ink"], done["unpaid ink"], row.error) == (1, 0, None)


@reloaded
async def test_a_saga_that_ended_well_is_not_undone_when_the_machine_fails_later(opened: Open, reload: bool) -> None:
    engine, shop = await with_shop(opened)
    assert await shop.call(Shop.buy, "ink") == 1
    if reload:
        engine, shop = await loaded_anew(opened, engine, shop)
    await shop.call(Shop.close)
    with pytest.raises(ProcessFailed, match="bankrupt") as failed:
        await shop.result(LIMIT)
    assert (done["unpaid ink"], failed.value.undone) == (0, ())


@reloaded
async def test_a_saga_that_ended_well_is_not_undone_when_its_flow_fails_later(opened: Open, reload: bool) -> None:
    engine, _ = await opened(work=True)
    order = await engine.start(Order.begun)
    await until_row(engine, order.id, lambda row: done["paid rent"] and b'"state":"paying"' in (row.state or b""))
    if reload:
        engine, order = await loaded_anew(opened, engine, order)
    assert await order.call(Order.rejected) == "refused"
    with pytest.raises(ProcessFailed, match="refused"):
        await order.result(LIMIT)
    assert (done["paid rent"], done["unpaid rent"]) == (1, 0)


@reloaded
async def test_a_saga_that_ended_well_is_undone_when_its_own_method_is_cancelled(opened: Open, reload: bool) -> None:
    engine, shop = await with_shop(opened)
    assert await shop.call(Shop.buy, "paper") == 1
    buying = asyncio.create_task(shop.call(Shop.buy_and_wait, "ink"))
    await until(lambda: done["began delivery"])
    if reload:
        buying.cancel()
        engine, shop = await loaded_anew(opened, engine, shop)
        await until(lambda: done["began delivery"] == 2)
    await shop.cancel()
    row = await until_row(engine, shop.id, lambda row: row.status is Status.CANCELLED)
    buying.cancel()
    await asyncio.wait([buying])
    assert (done["paid ink"], done["unpaid ink"], done["unpaid paper"]) == (1, 1, 0)
    assert b"paid" in (row.error or b"")


@reloaded
async def test_a_step_with_an_undo_is_refused_outside_of_sagas_also_after_one(opened: Open, reload: bool) -> None:
    engine, shop = await with_shop(opened)
    assert await shop.call(Shop.buy, "ink") == 1
    if reload:
        engine, shop = await loaded_anew(opened, engine, shop)
    with pytest.raises(CallRefused, match="async with saga"):
        await shop.call(Shop.buy_openly, "paper")
    assert done["paid paper"] == 0


@reloaded
async def test_what_an_earlier_method_has_undone_is_not_told_of_the_end_of_the_machine(
    opened: Open, reload: bool
) -> None:
    engine, shop = await with_shop(opened)
    assert (await shop.call(Shop.print), done["unpaid paper"]) == ("undone", 1)
    if reload:
        engine, shop = await loaded_anew(opened, engine, shop)
    await shop.call(Shop.close)
    with pytest.raises(ProcessFailed, match="bankrupt") as failed:
        await shop.result(LIMIT)
    assert failed.value.undone == ()


async def test_what_the_method_has_undone_with_which_a_machine_fails_is_told_of_its_end(opened: Open) -> None:
    _, shop = await with_shop(opened)
    await shop.call(Shop.print_or_close)
    with pytest.raises(ProcessFailed, match="compensated: paid") as failed:
        await shop.result(LIMIT)
    assert (done["unpaid paper"], len(failed.value.undone)) == (1, 1)
