"""Many at once: processes of every behaviour, signals by the thousand, many who wait, two engines side by side."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.errors import ProcessBroken, ProcessCancelled, ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until

LONG = 60.0
done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@step(retry=Retry(attempts=3, first=0.001, jitter=0.0))
async def work(number: int, fails: int = 0) -> int:
    if attempt().number <= fails:
        raise ConnectionError("again")
    await asyncio.sleep(0)
    return number


@step(retry=Retry.NONE)
def in_a_thread(number: int) -> int:
    return number


@step(retry=Retry.NONE)
async def endless() -> None:
    await asyncio.Event().wait()


async def straight(number: int) -> int:
    return await work(number) + await work(0)


async def parallel(number: int) -> int:
    return sum(await asyncio.gather(work(number), *(work(0) for _ in range(4))))


async def retried(number: int) -> int:
    return await work(number, fails=2)


async def slept(number: int) -> int:
    await asyncio.sleep(0.001 * (number % 20))
    return number


async def threaded(number: int) -> int:
    return await in_a_thread(number)


async def told(number: int) -> int:
    return int(await receive("number"))


async def timed(number: int) -> int:
    try:
        async with asyncio.timeout(0.01):
            await endless()
    except TimeoutError:
        return number
    return -1


async def failed(number: int) -> int:
    await work(number)
    raise ValueError(f"number {number}")


async def cancelled(number: int) -> int:
    try:
        await receive("never")
    finally:
        await work(number)
    return -1


async def broken(number: int) -> int:
    await work(number)
    while number:
        await asyncio.sleep(0)
    return -1


GOOD = (straight, parallel, retried, slept, threaded, told, timed)
BAD = {failed: ProcessFailed, cancelled: ProcessCancelled, broken: ProcessBroken}
BEHAVIOURS = (*GOOD, *BAD)


@workflow
async def mixed(number: int) -> int:
    return await BEHAVIOURS[number % len(BEHAVIOURS)](number)


async def all_laws_hold(engine: Engine) -> Counter[Status]:
    """Check every record there is; the answer counts them by status."""
    rows = await engine.store.search(Search(limit=100_000))
    now = await engine.store.now()
    counts: Counter[Status] = Counter()
    for row in rows:
        events = await engine.store.history(row.id, row.run, limit=row.events or 1)
        messages = await engine.store.messages([(row.id, 0)])
        assert unsound(row, events, messages, now) == []
        results = Counter((e.name, e.place) for e in events if e.type is EventType.STEP_COMPLETED)
        assert not results or max(results.values()) == 1
        counts[row.status] += 1
    return counts


async def test_a_thousand_processes_of_every_behaviour_end_as_they_should(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.turns import bare_loop

    monkeypatch.setattr(bare_loop, "TURN_CALLS", 5000)
    here, _ = await opened(work=True, workflows=[mixed])
    client, _ = await opened()
    size = 1000
    handles = await here.start_many(mixed, [(number,) for number in range(0, size, 2)])
    handles += await client.start_many(mixed, [(number,) for number in range(1, size, 2)])
    numbers = [*range(0, size, 2), *range(1, size, 2)]
    asked = []
    for number, handle in zip(numbers, handles, strict=True):
        behaviour = BEHAVIOURS[number % len(BEHAVIOURS)]
        if behaviour is told:
            asked.append(client.process(handle.id).signal("number", number))
        elif behaviour is cancelled:
            asked.append(client.process(handle.id).cancel())
    await asyncio.gather(*asked)
    async with asyncio.timeout(LONG):
        results = await asyncio.gather(
            *(client.process(handle.id).result() for handle in handles), return_exceptions=True
        )
    for number, result in zip(numbers, results, strict=True):
        behaviour = BEHAVIOURS[number % len(BEHAVIOURS)]
        if behaviour in BAD and (behaviour is not broken or number):
            assert type(result) is BAD[behaviour], (behaviour.__name__, number, result)
        else:
            assert result == number, (behaviour.__name__, number)
    counts = await all_laws_hold(client)
    each = size // len(BEHAVIOURS)
    assert counts == {
        Status.COMPLETED: each * len(GOOD), Status.FAILED: each, Status.CANCELLED: each, Status.BROKEN: each,
    }  # fmt: skip
    await until(lambda: here.metrics()["in_hand"] == 0)


@workflow
async def listening(signals: int) -> list[int]:
    return [await receive("number") for _ in range(signals)]


async def test_a_thousand_signals_to_one_process_arrive_in_order_each_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[listening])
    client, _ = await opened()
    handle = await engine.start(listening, 1000)
    sending = [asyncio.create_task(engine.process(handle.id).signal("number", number)) for number in range(900)]
    await asyncio.gather(*sending)
    for number in range(900, 1000):  # two who send at once would have no order between them
        await (engine, client)[number % 2].process(handle.id).signal("number", number)
    assert await handle.result(LONG) == list(range(1000))
    await all_laws_hold(client)


async def test_a_process_under_fire_can_be_terminated(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[listening])
    client, _ = await opened()
    handle = await engine.start(listening, 10_000)
    firing = True

    async def fire() -> None:
        while firing:
            await asyncio.gather(*(engine.process(handle.id).signal("number", 1) for _ in range(20)))

    fires = [asyncio.create_task(fire()) for _ in range(3)]
    await until(lambda: engine.metrics().get("commits", 0) > 3)
    await client.process(handle.id).terminate(who="anna", why="enough")
    firing = False
    await asyncio.gather(*fires)
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def one_gate(name: str) -> str:
    return await gated(name)


async def test_many_wait_for_one_result_here_and_elsewhere_and_some_give_up(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    client, _ = await opened()
    handle = await engine.start(one_gate, "x")
    waiting = [asyncio.create_task(who.process(handle.id).result()) for who in (engine, client) for _ in range(200)]
    leaving = [
        asyncio.create_task(who.process(handle.id).result(timeout=0.01)) for who in (engine, client) for _ in range(20)
    ]
    cancelled = [asyncio.create_task(who.process(handle.id).result()) for who in (engine, client) for _ in range(20)]
    answers = await asyncio.gather(*leaving, return_exceptions=True)
    assert {type(answer) for answer in answers} == {TimeoutError}
    for one in cancelled:
        one.cancel()
    gates["x"].set()
    assert set(await asyncio.wait_for(asyncio.gather(*waiting), LIMIT)) == {"x"}
    assert await handle.result(0.0) == "x", "a finished process answers at once"


async def test_a_start_whose_caller_gave_up_goes_on_all_the_same(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    client, _ = await opened()
    for number, who in enumerate((engine, client)):
        starting = asyncio.create_task(who.start(one_gate.options(key=f"k{number}"), "x"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
    await until(lambda: done == ["x", "x"])
    gates["x"].set()
    for number in range(2):
        again = await engine.start(one_gate.options(key=f"k{number}"), "x")
        assert not again.created
        assert await again.result(LIMIT) == "x"


async def test_two_engines_of_one_program_share_one_database(opened: Open) -> None:
    """Their locks are told apart although one OS process holds both, and each event loop task keeps to its own."""
    one, _ = await opened(work=True, workflows=[one_gate, mixed])
    two, _ = await opened(work=True, workflows=[one_gate, mixed])
    gates["x"].set()
    handles = [await (one, two)[number % 2].start(one_gate, "x") for number in range(20)]
    assert [await two.process(handle.id).result(timeout=LIMIT) for handle in handles] == ["x"] * 20
    alive = [worker for worker in await one.store.workers() if not worker.lock_free]
    assert len(alive) == 2
    await one.close()
    assert [worker.lock_free for worker in await two.store.workers()] == [False]
    for engine in (one, two):
        assert engine.metrics().get("workers_dead", 0) == 0
    assert await (await two.start(one_gate, "x")).result(LIMIT) == "x"


async def test_waiting_for_a_process_that_retention_removed_ends_with_an_error(opened: Open) -> None:
    from perdure.errors import ProcessNotFound

    engine, store = await opened(work=True, workflows=[one_gate])
    gates["x"].set()
    handle = await engine.start(one_gate, "x")
    assert await handle.result(LIMIT) == "x"
    assert (await store.prune(0, 0, 10)).processes == 1
    with pytest.raises(ProcessNotFound, match="it was removed"):
        await handle.result(LIMIT)
