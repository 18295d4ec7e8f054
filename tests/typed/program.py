"""What type checkers see of Perdure: each ``type: ignore`` is a mistake that they must find, and nothing else is one.

A checker that ignores a line without a mistake says so: that is an error too. This file is checked and never run.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type

from perdure import (
    BlockingEngine,
    Engine,
    Handle,
    NamedWorkflow,
    Schedule,
    Step,
    Workflow,
    flow,
    machine,
    step,
    testing,
    workflow,
)
from perdure.client.schedules import ScheduleHandle, ScheduleView
from perdure.client.view import ProcessView
from perdure.portal import BlockingHandle, BlockingScheduleHandle


@step
async def charge(order: str, cents: int) -> bool:
    return cents > 0 and order != ""


@step(queue="bank", raises=(KeyError, ValueError))
async def refund(order: str) -> None: ...


@workflow
async def order(number: str, cents: int = 1299) -> str:
    assert_type(await charge(number, cents), bool)
    await charge(number, "1299")  # type: ignore[arg-type]
    await charge.options(priority=1)(number)  # type: ignore[call-arg]
    assert_type(await order.child(number, 7), str)
    await order.child(7)  # type: ignore[arg-type]
    await order.child.options(deadline=60.0)(number, cents=7)
    return number


@workflow(name="billing/keyed")
async def keyed(key: str, signal: int) -> list[str]:
    """Its parameters have the names of options."""
    return [key] * signal


async def start(engine: Engine) -> None:
    assert_type(await engine.start(order, "A-17", 1299), Handle[str])
    assert_type(await (await engine.start(order, "A-17")).result(), str)
    assert_type(await engine.start(keyed, key="A-17", signal=7), Handle[list[str]])
    assert_type(await engine.start(order.options(key="A-17", deadline=60), "A-17", cents=7), Handle[str])
    assert_type(await engine.start(keyed.options(signal=("paid", 7)), "A-17", 7), Handle[list[str]])
    assert_type(await engine.start("shop.order", "A-17", 7), Handle[Any])
    assert_type(await engine.start(NamedWorkflow("shop.order").options(key="A-17"), "A-17"), Handle[Any])
    assert_type(await engine.start_many(order, [("A-17",)]), list[Handle[str]])
    orders = await engine.start_many(order, [("A-17",)])
    assert_type(await engine.results(orders), list[str])
    assert_type(await engine.results(orders, 5, return_exceptions=True), list[str | Exception])
    assert_type(await engine.handle(order, "A-17"), Handle[str])
    assert_type(engine.process("019e7044-8ea4-7009-aa00-0976a74e7de6", str), Handle[str])
    assert_type(engine.process("019e7044-8ea4-7009-aa00-0976a74e7de6"), Handle[Any])
    await engine.start(order)  # type: ignore[call-overload]
    await engine.start(order, 17)  # type: ignore[call-overload]
    await engine.start(order, "A-17", colour="red")  # type: ignore[call-arg]
    await engine.start(order, "A-17", key="A-17")  # type: ignore[call-arg]
    await engine.start(order.options(key=17), "A-17")  # type: ignore[arg-type, call-overload]
    await engine.start(order.options(kei="A-17"), "A-17")  # type: ignore[call-arg, call-overload]
    await engine.start(order("A-17"))  # type: ignore[call-overload]
    await engine.start(charge, "A-17", 7)  # type: ignore[call-overload]


async def buy(engine: Engine, cents: int) -> list[str]:
    return [(await engine.start(order, "A-17", cents)).id]


def block(engine: BlockingEngine, handle: BlockingHandle[int]) -> None:
    assert_type(engine.start(order, "A-17", 7), BlockingHandle[str])
    assert_type(engine.start(order.options(key="A-17"), "A-17").result(), str)
    assert_type(engine.start("shop.order", 7), BlockingHandle[Any])
    assert_type(engine.start_many(order, [("A-17",)]), list[BlockingHandle[str]])
    assert_type(engine.results([handle]), list[int])
    assert_type(engine.results([handle], return_exceptions=True), list[int | Exception])
    assert_type(engine.handle(order, "A-17"), BlockingHandle[str])
    assert_type(engine.process(handle.id).status(), ProcessView)
    assert_type(handle.status(), ProcessView)
    assert_type(handle.result(1.0), int)
    assert_type(handle.call("quote", 7), Any)
    assert_type(engine.metrics(), dict[str, float])
    assert_type(engine.run(buy, 7), list[str])
    with BlockingEngine("sqlite:///shop.db", work=True) as opened:
        assert_type(opened, BlockingEngine)
    engine.start(order, key=7)  # type: ignore[call-overload]
    engine.process()  # type: ignore[call-overload]
    engine.status(handle.id)  # type: ignore[attr-defined]
    engine.run(buy, "7")  # type: ignore[arg-type]
    handle.cancel(whom="Ann")  # type: ignore[call-arg]
    BlockingEngine("sqlite:///shop.db", wrk=True)  # type: ignore[call-arg]


async def plan(engine: Engine, at: datetime) -> None:
    daily = Schedule("@daily", zone="Europe/Berlin", overlap="queue", catch_up=timedelta(hours=2))
    assert_type(await engine.schedules.put("n", daily, order, "A-17", cents=7), ScheduleHandle)
    assert_type(await engine.schedules.put("n", daily, order.options(deadline=60), "A-17"), ScheduleHandle)
    assert_type(await engine.schedules.put("n", daily, NamedWorkflow("shop.order"), "A-17", 7), ScheduleHandle)
    assert_type(await engine.schedules.list(), list[ScheduleView])
    nightly = engine.schedules.handle("n")
    assert_type(await nightly.status(), ScheduleView)
    assert_type(await nightly.trigger(timeout=5), Handle[Any])
    assert_type(await nightly.backfill(at, at + timedelta(days=1)), int)
    await engine.schedules.put("n", Schedule("@daily"), order, 17)  # type: ignore[arg-type]
    await engine.schedules.put("n", Schedule("@daily"), order)  # type: ignore[call-arg]
    await engine.schedules.put("n", "@daily", order, "A-17")  # type: ignore[arg-type]
    await engine.schedules.put("n", daily, order.options(deadline=60), "A-17", colour="red")  # type: ignore[call-arg]
    await engine.schedules.put("n", daily, charge, "A-17", 7)  # type: ignore[arg-type]
    await nightly.backfill(at)  # type: ignore[call-arg]
    Schedule("@daily", overlap="both")  # type: ignore[arg-type]


def plan_and_block(engine: BlockingEngine, at: datetime) -> None:
    assert_type(engine.schedules.put("n", Schedule("@daily"), order, "A-17", 7), BlockingScheduleHandle)
    assert_type(engine.schedules.list(), list[ScheduleView])
    nightly = engine.schedules.handle("n")
    assert_type(nightly, BlockingScheduleHandle)
    assert_type(nightly.status(), ScheduleView)
    assert_type(nightly.trigger(timeout=5), BlockingHandle[Any])
    assert_type(nightly.process(), BlockingHandle[Any])
    assert_type(nightly.backfill(at, at + timedelta(days=1)), int)
    nightly.pause(who="Ann", why="a holiday")
    engine.schedules.put("n", Schedule("@daily"), order, 17)  # type: ignore[arg-type]
    engine.schedules.put("n", Schedule("@daily"), order)  # type: ignore[call-arg]
    engine.schedules.put("n", "@daily", order, "A-17")  # type: ignore[arg-type]
    nightly.pause(whom="Ann")  # type: ignore[call-arg]
    nightly.backfill(at)  # type: ignore[call-arg]


def approve(order: str, cents: int) -> bool:
    return True


async def play() -> None:
    fakes: testing.Fakes = {charge: approve, refund: print}
    async with testing.engine(steps=fakes) as engine:
        assert_type(engine, testing.SkippingEngine)
        assert_type(await engine.start(order, "A-17"), Handle[str])
        await engine.sleep(timedelta(days=3))
    testing.engine(steps={"charge": print})  # type: ignore[dict-item]


def annotate(flow: Workflow[[str, int], str], part: Step[[str, int], bool], done: Handle[str]) -> str:
    return f"{flow}, {part} and {done}"


annotate(order, charge, charge)  # type: ignore[arg-type]


class Account(machine.Machine):
    owner: str
    balance: int = 0

    @machine.init
    async def opened(self, owner: str) -> None:
        self.owner = owner

    @machine.call
    async def deposit(self, amount: int, text: str = "") -> int:
        return self.balance + amount + len(text)

    @machine.call
    def history(self) -> list[str]:
        return [self.owner]

    @machine.signal
    def close(self, why: str) -> None:
        machine.complete(why)

    @machine.repair
    async def corrected(self, balance: int) -> None:
        self.balance = balance


async def bank(engine: Engine) -> None:
    ann = await engine.start(Account.opened, "Ann")
    assert_type(await engine.start(Account.opened.options(key="Ann"), owner="Ann"), Handle[Any])
    assert_type(await ann.call(Account.deposit, 500), int)
    assert_type(await ann.call(Account.deposit, amount=500, text="rent"), int)
    assert_type(await ann.call(Account.deposit.options(key="t-1", timeout=5), 500), int)
    assert_type(await ann.call(Account.history), list[str])
    await ann.signal(Account.close, "moved")
    await ann.repair(Account.corrected, 5)
    await ann.repair("corrected", [5], who="Bob")
    await ann.repair(Account.corrected)  # type: ignore[call-overload]
    await ann.repair(Account.close, "moved")  # type: ignore[call-overload]
    await engine.start(Account.opened)  # type: ignore[call-overload]
    await ann.call(Account.deposit, "500")  # type: ignore[call-overload]
    await ann.call(Account.deposit)  # type: ignore[call-overload]
    await ann.call(Account.close, "moved")  # type: ignore[call-overload]
    await ann.signal(Account.close)  # type: ignore[call-overload]
    await ann.signal(Account.deposit, 5)  # type: ignore[call-overload]


class Claim(flow.Flow):
    cents: int = 0

    open = flow.State(timeout=timedelta(days=1))
    paid = flow.State(terminal=True, result="cents")

    @flow.init
    def reported(self, car: str) -> None:
        self.cents = len(car)

    @flow.event
    def estimated(self, cents: int) -> None:
        self.cents = cents

    @flow.request(timeout=60, answers={"PRICE": estimated, ("NONE", "X"): flow.interim(estimated)}, default=estimated)
    async def estimate(self, id: str) -> None:
        await refund(id)

    @flow.action(errors={KeyError: estimated}, timeout=5)
    async def look(self) -> flow.Happened:
        assert_type(self.estimated(5), flow.Happened)
        self.estimated("5")  # type: ignore[arg-type]
        return self.estimated(5)

    @flow.action  # type: ignore[arg-type]
    def hasty(self) -> None:
        """It is no coroutine."""

    behaviour = flow.table(
        flow.on(reported).to(open).do(estimate.options(timeout=5), look),
        flow.any_of(estimated, open.timed_out, estimate.timed_out, in_=(open, open)).to(paid).stop(estimate),
        flow.on("estimated"),  # type: ignore[arg-type]
        flow.on(estimated).to("paid"),  # type: ignore[arg-type]
        flow.on(estimated).do(estimated),  # type: ignore[arg-type]
        flow.on(estimated).stop(look),  # type: ignore[arg-type]
    )


async def claims(engine: Engine) -> None:
    claim = await engine.start(Claim.reported, "a car")
    assert_type(await claim.call(Claim.estimated, 5), str)
    assert_type(await claim.call(Claim.answer, "id", "PRICE", value=5), str)
    assert_type(await claim.call(Claim.abort.options(who="Ann"), "a fraud"), str)
    assert_type(await Claim.reported.child("a car"), Any)
    await claim.signal(Claim.estimated, 5)
    await claim.signal(Claim.answer.options(key="a-1"), "id", reason="AC04")
    await claim.call(Claim.estimated, "5")  # type: ignore[call-overload]
    await claim.signal(Claim.estimated)  # type: ignore[call-overload]
    await claim.signal(Claim.answer)  # type: ignore[call-overload]
    await engine.start(Claim.reported)  # type: ignore[call-overload]
