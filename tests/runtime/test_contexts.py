"""Contexts: what came with a request reaches everything that follows from it, and is the same after a crash."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

import perdure
from perdure import Call, Engine, Retry, attempt, continue_as_new, machine, receive, step, tell, workflow
from perdure.errors import InvalidInput, PayloadTooLarge
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.test_sealed_life import sealed

ACME = {"tenant": "acme", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
seen: list[tuple[str, Any]] = []
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()
    gates.clear()


@step
async def noted(where: str) -> None:
    """A step, and what it is given."""
    seen.append((where, attempt().context))


@step(queue="contexts")
async def queued(where: str) -> None:
    """The same in a queue."""
    seen.append((where, perdure.context()))


@step
def threaded(where: str) -> None:
    """The same in a thread."""
    seen.append((where, perdure.context()))


@step(hard=True)
def hard() -> dict[str, Any]:
    """The same in an OS process of its own."""
    return perdure.context()


@step(retry=Retry(attempts=2, first=0.001))
async def again() -> None:
    """The same at a second attempt."""
    seen.append((f"attempt {attempt().number}", attempt().context))
    if attempt().number == 1:
        raise ConnectionError("once more")


@step
async def waits(gate: str) -> str:
    """Wait for a gate."""
    seen.append((f"began {gate}", attempt().context))
    await gates[gate].wait()
    return gate


@workflow
async def kid() -> Any:
    """A child, which tells its grandchild's context."""
    await noted("child's step")
    return perdure.context()


@workflow
async def order(runs: int = 1) -> Any:
    """Everything that can follow from a start."""
    await noted("step")
    await asyncio.gather(queued("task"), threaded("thread"), again())
    seen.append(("child", await kid.child()))
    await asyncio.sleep(0.001)
    if runs > 1:
        continue_as_new(runs - 1)
    return perdure.context()


async def test_a_context_reaches_everything_that_follows_from_a_start(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, kid])
    handle = await engine.start(order.options(context=ACME, attributes={"color": "red"}), 2)
    assert await handle.result(LIMIT) == ACME
    assert dict(seen).keys() == {"step", "task", "thread", "attempt 1", "attempt 2", "child", "child's step"}
    assert all(given == ACME for _, given in seen)
    view = await handle.status()
    assert (view.context, view.attributes) == (ACME, {"color": "red"})


async def test_who_gives_none_has_none(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, kid])
    for given in (None, {}):
        handle = await engine.start(order.options(context=given))
        assert await handle.result(LIMIT) == {}
    assert {str(given) for _, given in seen} == {"{}"}
    view = await handle.status()
    assert (view.context, view.attributes) == (None, None)
    assert (await engine.row(handle.id)).attributes is None


async def test_a_context_is_a_small_mapping(opened: Open) -> None:
    engine, _ = await opened()
    with pytest.raises(InvalidInput, match="is no context"):
        await engine.start(order.options(context=["acme"]))  # type: ignore[arg-type]
    with pytest.raises(PayloadTooLarge, match="the context"):
        await engine.start(order.options(context={"tenant": "a" * 5000}))
    with pytest.raises(InvalidInput, match="@context"):
        await engine.start(order.options(attributes={"@context": "{}"}))
    assert await engine.count() == {}


async def test_another_context_is_no_other_start(opened: Open) -> None:
    engine, _ = await opened()
    first = await engine.start(order.options(key="A-17", context=ACME))
    again = await engine.start(order.options(key="A-17", context={"tenant": "other"}))
    assert (again.created, again.id) == (False, first.id)
    assert (await again.status()).context == ACME


@workflow
async def resumed(gate: str) -> Any:
    """A step that waits, and then another one."""
    before = perdure.context()
    await waits(gate)
    await noted("after")
    return [before, perdure.context()]


async def test_another_worker_goes_on_with_the_same_context(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[resumed])
    handle = await engine.start(resumed.options(context=ACME), "a")
    await until(lambda: seen)
    await engine.close(0)
    gates["a"].set()
    second, _ = await opened(work=True, workflows=[resumed])
    assert await second.process(handle.id).result(LIMIT) == [ACME, ACME]
    assert all(given == ACME for _, given in seen)


async def test_restarts_retries_and_forks_keep_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order, kid])
    handle = await engine.start(order.options(context=ACME))
    await handle.result(LIMIT)
    fork = await handle.fork("noted")
    assert await fork.result(LIMIT) == ACME
    await handle.restart()
    await until_row(engine, handle.id, lambda row: row.run == 2 and row.final)
    assert await handle.result(LIMIT) == ACME
    assert all(given == ACME for _, given in seen)


@workflow
async def desk(teller: str) -> list[Any]:
    """Receives a call and a signal, and tells another process of it."""
    call = await receive("ask", Call[str])
    call.answer(call.value)
    tell(teller, "told", [1])
    return [call.context, perdure.context()]


async def test_a_call_shows_what_came_with_it_and_a_signal_carries_it_on(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[desk, Till.opened])
    till = await engine.start(Till.opened)
    handle = await engine.start(desk.options(context=ACME), till.id)
    assert await handle.call("ask", "who", str, context={"tenant": "caller"}) == "who"
    assert await handle.result(LIMIT) == [{"tenant": "caller"}, ACME]
    await until_row(engine, till.id, lambda row: b"told" in (row.state or b""))
    assert (await till.status()).state["log"] == [["opened", {}], ["told", ACME]]


class Till(machine.Machine):
    """A machine that writes down the context of each method."""

    log: list[tuple[str, dict[str, Any]]] = machine.field(default_factory=list)

    @machine.init
    async def opened(self) -> None:
        self.log.append(("opened", perdure.context()))

    @machine.call
    async def pay(self, gate: str) -> list[tuple[str, dict[str, Any]]]:
        """Wait for a gate, and then act later."""
        await waits(gate)
        self.log.append((gate, perdure.context()))
        machine.schedule(0.01)
        return self.log

    @machine.call
    def plan(self, seconds: float) -> None:
        """Act later."""
        machine.schedule(seconds)

    @machine.call
    def look(self) -> list[tuple[str, dict[str, Any]]]:
        """All that was written down."""
        return self.log

    @machine.signal
    def told(self, value: int) -> None:
        """A signal."""
        self.log.append(("told", perdure.context()))

    @machine.timer
    async def later(self) -> None:
        """Some time after a payment."""
        await noted("later")
        self.log.append(("later", perdure.context()))


async def later(engine: Engine, id: str) -> list[Any]:
    """What a till has written down, once its timer has come."""
    await until_row(engine, id, lambda row: b'"later"' in (row.state or b""))
    log: list[Any] = (await engine.process(id).status()).state["log"]
    return log


async def test_a_method_has_what_came_with_its_call_and_its_timer_has_it_too(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[Till.opened])
    gates["a"].set()
    till = await engine.start(Till.opened.options(context={"tenant": "opener"}))
    paid = await till.call(Till.pay.options(context=ACME), "a")
    assert paid == [("opened", {"tenant": "opener"}), ("a", ACME)]
    assert (await till.call(Till.look))[:2] == paid  # it has no context of its own, and leaves the timer's as it is
    await till.signal(Till.told, 5)
    assert ["later", ACME] in await later(engine, till.id)
    assert ["told", {}] in await until_told(engine, till.id)
    assert dict(seen) == {"began a": ACME, "later": ACME}


async def test_a_method_under_way_and_a_timer_keep_it_over_a_crash(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[Till.opened])
    client, _ = await opened()
    till = client.process((await engine.start(Till.opened)).id)
    paid = asyncio.create_task(till.call("pay", ["a"], context=ACME))
    await until(lambda: seen)
    await engine.close(0)
    gates["a"].set()
    await opened(work=True, workflows=[Till.opened])
    assert (await paid)[-1] == ["a", ACME]
    assert ["later", ACME] in await later(client, till.id)


async def test_a_timer_that_was_set_before_a_crash_keeps_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[Till.opened])
    till = await engine.start(Till.opened)
    await till.call(Till.plan.options(context=ACME), 0.5)
    await engine.close(0)
    second, _ = await opened(work=True, workflows=[Till.opened])
    assert ["later", ACME] in await later(second, till.id)


@workflow
async def confined() -> Any:
    """A hard step."""
    return await hard()


async def test_a_hard_step_has_it_too(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[confined])
    handle = await engine.start(confined.options(context=ACME))
    assert await handle.result(LIMIT) == ACME


async def test_a_step_outside_of_a_process_has_none() -> None:
    assert perdure.context() == {}
    await noted("alone")
    assert seen == [("alone", {})]


async def test_a_sealed_context_is_read_by_those_who_have_the_key_alone(opened: Open) -> None:
    engine, _ = await opened(work=True, codecs=sealed(), workflows=[desk, Till.opened])
    till = await engine.start(Till.opened)
    handle = await engine.start(desk.options(context=ACME), till.id)
    stranger, store = await opened()
    row = await stranger.row(handle.id)
    assert b"acme" not in (row.attributes or b"")
    assert b"@context" in (row.attributes or b"")
    assert isinstance((await stranger.process(handle.id).status()).context, str)
    assert await handle.call("ask", "who", str, context={"tenant": "caller"}) == "who"
    assert await handle.result(LIMIT) == [{"tenant": "caller"}, ACME]
    (letter,) = await store.messages([(handle.id_bytes, 0)])
    assert b"caller" not in (letter.sender or b"")
    await engine.close(0)
    second, _ = await opened(work=True, codecs=sealed(), workflows=[desk, Till.opened])
    assert (await second.process(handle.id).status()).context == ACME
    assert ["told", ACME] in (await until_told(second, till.id))


async def until_told(engine: Engine, id: str) -> list[Any]:
    """What a till has written down, once it was told of a call."""
    await until_row(engine, id, lambda row: b'"told"' in (row.state or b""))
    log: list[Any] = (await engine.process(id).status()).state["log"]
    return log
