"""Stopping: a step in flight finishes, the rest is handed back at once, nobody waits for ever, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.errors import PerdureError, StoreError, StoreUnavailable
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.testing.faults import Gate, Outage
from tests.runtime.conftest import A_MOMENT, LIMIT, Open, engines_on, until, until_row

done: list[str] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@step(retry=Retry.NONE)
async def quick(name: str) -> str:
    done.append(name)
    return name


@workflow
async def forked() -> str:
    slow = gated("slow")
    await receive("go")
    late = quick("late")
    return f"{await slow} {await late}"


async def test_a_step_asked_for_while_stopping_is_not_forgotten(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=[forked])
    handle = await first.start(forked)
    await until(lambda: "slow" in done)
    assert first.worker is not None
    scheduler = first.worker.scheduler
    scheduler.drain()  # stopping has begun, and waits for the step in flight
    await handle.signal("go")
    await until(
        lambda: handle.id_bytes in scheduler.instances and scheduler.instances[handle.id_bytes].inbox.heard == 1
    )
    gates["slow"].set()
    await until(lambda: not scheduler.instances)
    assert done == ["slow"], "no step begins while stopping"
    row = await until_row(first, handle.id, lambda row: row.owner is None)
    assert not row.reminder, "somebody goes on at once, not at the next idle check"
    await first.close(0)
    second, _ = await opened(work=True, workflows=[forked])
    assert await second.process(handle.id).result(timeout=LIMIT) == "slow late"
    assert done == ["slow", "late"]


@workflow
async def one_gate(name: str) -> str:
    return await gated(name)


async def test_a_result_that_arrives_as_the_stop_begins_is_written(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    handle = await engine.start(one_gate, "x")
    await until(lambda: "x" in done)
    assert engine.worker is not None
    scheduler = engine.worker.scheduler
    instance = scheduler.instances[handle.id_bytes]
    gates["x"].set()
    while not instance.inputs and not instance.gone:
        await asyncio.sleep(0)
    scheduler.drain()  # the result is in memory, and its turn has not run yet
    assert await handle.result(LIMIT) == "x"


async def test_a_process_that_only_waits_is_handed_back_without_waiting_for_the_limit(opened: Open) -> None:
    @workflow
    async def napping() -> None:
        while True:
            await asyncio.sleep(0.05)

    engine, _ = await opened(work=True, workflows=[napping])
    handle = await engine.start(napping)
    began = asyncio.get_running_loop().time()
    await engine.close(LIMIT)
    assert asyncio.get_running_loop().time() - began < LIMIT / 2
    client, _ = await opened()
    assert (await client.row(handle.id)).owner is None


async def test_what_does_not_finish_in_time_is_handed_back_and_another_goes_on_at_once(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=[one_gate])
    handle = await first.start(one_gate, "x")
    await until(lambda: "x" in done)
    await first.close(0.01)
    gates["x"].set()
    second, _ = await opened(work=True, workflows=[one_gate])
    assert (await second.row(handle.id)).token <= 2, "handed back, not waited out"
    assert await second.process(handle.id).result(timeout=LIMIT) == "x"
    assert second.metrics().get("takeovers", 0) == 0


async def test_a_second_request_to_stop_hands_everything_back_at_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    handle = await engine.start(one_gate, "x")
    await until(lambda: "x" in done)
    closing = asyncio.create_task(engine.close(3600))
    await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT):
        await engine.close(0)  # at once, before the first request has come any further
    await closing
    client, _ = await opened()
    assert (await client.row(handle.id)).owner is None


async def test_a_row_whose_commit_is_in_flight_at_the_limit_is_handed_back_after_it(opened: Open) -> None:
    @workflow
    async def two() -> str:
        return await gated("a") + await gated("b")

    engine, store = await opened(work=True, workflows=[two])
    handle = await engine.start(two)
    await until(lambda: "a" in done)
    assert engine.worker is not None
    instance = engine.worker.scheduler.instances[handle.id_bytes]
    gate = store.before = Gate("commit")
    gates["a"].set()
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    closing = asyncio.create_task(engine.close(0))
    await until(lambda: instance.leaving)
    gate.open.set()
    await closing
    client, _ = await opened()
    row = await client.row(handle.id)
    assert (row.owner, row.events, done) == (None, 1, ["a"])


async def test_closing_twice_is_closing_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    await asyncio.gather(engine.close(), engine.close(), engine.close(0))
    await engine.close()


async def test_a_close_that_is_cancelled_still_closes(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[one_gate])
    await engine.start(one_gate, "x")
    await until(lambda: "x" in done)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    gates["x"].set()
    await engine.close()
    with pytest.raises(StoreError):
        await engine.store.now()


async def test_closing_while_the_store_is_away_ends_and_answers_whoever_waits(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[one_gate])
    handle = await engine.start(one_gate, "x")
    await until(lambda: "x" in done)
    waiting = asyncio.create_task(handle.result())
    outage = Outage().upon(store)
    outage.away = True
    starting = asyncio.create_task(engine.start(one_gate, "y"))
    signalling = asyncio.create_task(engine.process(handle.id).signal("z"))
    await until(lambda: outage.failed > 2)
    gates["x"].set()
    await asyncio.wait_for(engine.close(0), LIMIT)
    answers = await asyncio.gather(waiting, starting, signalling, return_exceptions=True)
    assert [isinstance(answer, PerdureError) for answer in answers] == [True] * 3, answers
    outage.away = False
    client, _ = await opened()
    assert (await client.row(handle.id)).status == "running", "nothing is lost"


async def test_a_store_that_never_answers_does_not_keep_the_engine_from_closing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure import limits

    monkeypatch.setattr(limits, "STOP_SECONDS", 0.05)
    engine, store = await opened()
    gate = store.before = Gate("start")
    starting = asyncio.create_task(engine.start(one_gate, "x"))
    later = asyncio.create_task(engine.start(one_gate, "y"))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await asyncio.wait_for(engine.close(), LIMIT)
    answers = await asyncio.gather(starting, later, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    gate.open.set()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_engine_that_is_not_open_says_so_instead_of_waiting(sqlite_url: str, when: str) -> None:
    engine = Engine(sqlite_url, work=True, workflows=[one_gate])
    if when == "after":
        await engine.__aenter__()
        await engine.close()
    calls: list[Callable[[], object]] = [
        lambda: engine.start(one_gate, "x"),
        lambda: engine.process(bytes(16)).signal("x"),
        lambda: engine.process(bytes(16)).result(),
        lambda: engine.process(bytes(16)).status(),
    ]
    if when == "before":
        calls.append(engine.run)
    for call in calls:
        with pytest.raises(PerdureError, match="open"):
            await asyncio.wait_for(call(), LIMIT)  # type: ignore[arg-type]


async def test_an_engine_can_be_opened_again_after_it_was_closed(sqlite_url: str) -> None:
    engine = Engine(sqlite_url, work=True, workflows=[one_gate])
    for round in range(2):
        async with engine:
            gates["x"].set()
            handle = await engine.start(one_gate.options(key=f"round {round}"), "x")
            assert await handle.result(LIMIT) == "x"


stuck = threading.Event()


@step(retry=Retry.NONE, timeout=0.05)
def hanging() -> None:
    stuck.wait()


@workflow
async def hangs() -> str:
    try:
        await hanging()
    except TimeoutError:
        return "went on"
    return "never"


async def test_a_thread_that_hangs_keeps_nobody_from_stopping(opened: Open) -> None:
    stuck.clear()
    before = threading.enumerate()  # threads of earlier tests may still be ending
    try:
        engine, _ = await opened(work=True, workflows=[hangs])
        handle = await engine.start(hangs)
        assert await handle.result(LIMIT) == "went on"
        await asyncio.wait_for(engine.close(), LIMIT)
        since = [thread for thread in threading.enumerate() if thread not in before]
        left = [thread for thread in since if thread.name.startswith("perdure step")]
        assert [thread.daemon for thread in left] == [True], "the interpreter waits for no daemon"
    finally:
        stuck.set()


async def test_a_start_while_stopping_is_stored_for_others(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[one_gate], options=WorkerOptions(stop_seconds=1))
    gate = store.before = Gate("start")
    starting = asyncio.create_task(engine.start(one_gate, "x"))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    assert engine.worker is not None
    scheduler = engine.worker.scheduler
    closing = asyncio.create_task(engine.close())
    await until(lambda: scheduler.draining)
    gate.open.set()
    handle = await starting
    await closing
    assert done == []
    client, _ = await opened()
    row = await client.row(handle.id)
    assert (row.owner, row.status) == (None, "running")


async def test_a_claim_under_way_as_the_stop_begins_leaves_no_row_owned(postgres_url: str) -> None:
    """It waits for a lock: it is carried out though the worker has stopped, which hands its row back at once."""
    async with engines_on(postgres_url) as opened, AsyncExitStack() as stack:
        client, _ = await opened(workflows=[one_gate])
        engine, store = await opened(work=True, workflows=[one_gate])
        worker, other = engine.worker, await asyncpg.connect(postgres_url)
        stack.push_async_callback(other.close)
        assert worker is not None
        gate = store.before = Gate("claim")
        worker.claimer.wake()
        await asyncio.wait_for(gate.reached.wait(), LIMIT)
        handle = await client.start(one_gate, "late")  # no earlier claim is under way any more
        async with other.transaction():
            await other.execute("LOCK TABLE perdure.process IN EXCLUSIVE MODE")
            gate.open.set()
            await _until_one_waits_for_a_lock(postgres_url)
            draining = asyncio.create_task(worker.drain(LIMIT))
            await until(lambda: worker.scheduler.draining)
            for _ in range(20):  # time enough to look at what it owns: the claim is not among it yet
                assert (await client.row(handle.id)).owner is None
        await asyncio.wait_for(draining, LIMIT)
        async with other.transaction():
            await other.execute("LOCK TABLE perdure.process IN EXCLUSIVE MODE")  # behind the claim
        assert (await client.row(handle.id)).owner is None


async def _until_one_waits_for_a_lock(url: str) -> None:
    looking = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(LIMIT):
            while not await looking.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(A_MOMENT)
    finally:
        await looking.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_worker_gives_signs_of_life_until_it_is_closed_however_long_the_store_takes(opened: Open) -> None:
    """Else a parent takes it for stuck: it kills a child whose watchdog is silent for most of a lease."""
    engine, store = await opened(work=True, workflows=[forked], options=WorkerOptions(1.0, 0.2))
    assert engine.worker is not None
    watchdog, signs, ends = engine.worker.watchdog, list[int](), list[int]()
    watchdog.sign_by(lambda: signs.append(len(signs)), lambda: ends.append(len(signs)))
    store.before = gate = Gate("retire")
    closing = asyncio.create_task(engine.close())
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    before = len(signs)
    try:
        await until(lambda: len(signs) > before + 2)
        assert ends == []
    finally:
        gate.open.set()
        await closing
    assert ends == [len(signs)]
