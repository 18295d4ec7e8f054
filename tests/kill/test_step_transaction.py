"""SIGKILL and SIGSTOP around steps with a transaction: for each recorded result there is its effect, exactly once."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from perdure.engine import Engine
from perdure.kernel.event import EventType
from perdure.testing.postgres import Server
from tests.kill.cashier import FLOWS, payment
from tests.kill.harness import LIMIT, Harness, laws_hold, points, said
from tests.kill.workload import LEDGER
from tests.runtime.account import Account
from tests.runtime.conftest import until_row

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]
KILL, STOP, GO_ON = 9, 19, 18
SHORT = {"lease_seconds": 1.2, "beat_seconds": 0.2}
HOSTED = ["tests.kill.cashier:FLOWS"]


@pytest.fixture
async def account(harness: Harness) -> Account:
    """The table of payments; two of one number are impossible."""
    account = Account(harness.url)
    async with Engine(harness.url, migrate=True):
        await account.run("CREATE TABLE payment (n int PRIMARY KEY, key text)")
    return account


async def paid_once(engine: Engine, account: Account, id: str, result: list[str]) -> None:
    """Both payments stand in the table, each under the key of its step, and their results in the history, once."""
    keys = [(1, f"{id}/1/pay:1"), (2, f"{id}/1/pay:2")]
    assert await account.run("SELECT n, key FROM payment ORDER BY n") == keys
    done = [event for event in await engine.process(id).history() if event.type is EventType.STEP_COMPLETED]
    assert [event.message for event in done] == [1, 2]
    assert [text.rpartition(" ")[0] for text in result] == ["paid 1 by", "paid 2 by"]
    await laws_hold(engine)


@pytest.mark.parametrize(("point", "runs"), [("taken", 2), ("written", 3), ("kept", 3), ("committed", 2)])
async def test_a_worker_killed_around_a_step_s_commit_leaves_effect_and_result_or_neither(
    harness: Harness, account: Account, point: str, runs: int
) -> None:
    child = await harness.start_worker(
        start="payment", args=[account.kind, 1], modules=HOSTED, key="k", point=f"{point}:{KILL}"
    )
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
    there = await account.run("SELECT n FROM payment")
    assert there == ([(1,)] if point == "committed" else [])
    async with Engine(harness.url, work=True, workflows=FLOWS) as survivor:
        handle = await survivor.handle(payment, "k")
        result = await handle.result(LIMIT)
        await paid_once(survivor, account, handle.id, result)
        assert sum(harness.effects().values()) == runs, "what was committed is not run again"
        assert (result[0] == f"paid 1 by {child.pid}") == (point == "committed")


async def test_a_worker_stopped_in_a_step_has_its_late_effect_refused(harness: Harness, account: Account) -> None:
    orders: dict[str, Any] = {"point": f"written:{STOP}"}
    if account.kind == "sqlite":  # nobody else can write while the transaction is open: it is stopped just before
        orders = {"point": "taken:0", "kill_point": {"door": "beat", "call": 4, "side": "before", "signal": STOP}}
    child = await harness.start_worker(
        start="payment", args=[account.kind, 1], modules=HOSTED, key="k", options=SHORT, timeout=LIMIT, **orders
    )
    async with Engine(harness.url, work=True, workflows=FLOWS) as survivor:
        async with asyncio.timeout(LIMIT):
            while not (await survivor.count()).get("payment"):
                await asyncio.sleep(0.01)
        handle = await survivor.handle(payment, "k")
        result = await handle.result(LIMIT)
        before = await survivor.process(handle.id).history()
        child.send_signal(GO_ON)
        assert await said(child, "result") == str(result)
        await said(child, "metrics")
        assert await survivor.process(handle.id).history() == before
        await paid_once(survivor, account, handle.id, result)


async def test_a_worker_stopped_with_the_row_locked_keeps_nobody_from_it_for_long(
    harness: Harness, account: Account
) -> None:
    if account.kind == "sqlite":
        pytest.skip("a worker that is stopped with SQLite's write lock in hand must be killed by a person")
    child = await harness.start_worker(
        start="payment", args=[account.kind, 1], modules=HOSTED, key="k", options=SHORT, point=f"kept:{STOP}",
        timeout=LIMIT,
    )  # fmt: skip
    async with Engine(harness.url, work=True, workflows=FLOWS) as survivor:
        async with asyncio.timeout(LIMIT):
            while not (await survivor.count()).get("payment"):
                await asyncio.sleep(0.01)
        handle = await survivor.handle(payment, "k")
        result = await handle.result(LIMIT)  # PostgreSQL has ended the session after ten seconds of silence
        await paid_once(survivor, account, handle.id, result)
        child.send_signal(GO_ON)
        assert await said(child, "result") == str(result)
        await paid_once(survivor, account, handle.id, result)
        await until_row(survivor, handle.id, lambda row: row.final)


async def test_workers_killed_again_and_again_pay_each_once(harness: Harness, account: Account) -> None:
    orders: dict[str, Any] = {"modules": HOSTED, "options": SHORT}
    async with Engine(harness.url, migrate=True) as client:
        workers = [await harness.start_worker(**orders) for _ in range(2)]
        handles = await client.start_many(payment, [(account.kind, n) for n in range(0, 80, 2)])
        for kills in range(1, 5):
            async with asyncio.timeout(LIMIT):
                while len(harness.effects()) < 15 * kills:
                    await asyncio.sleep(0.01)
            killed = workers.pop(0)
            killed.send_signal(KILL)
            await killed.wait()
            workers.append(await harness.start_worker(**orders))
        for handle in handles:
            await client.process(handle.id).result(timeout=LIMIT)
        assert await account.run("SELECT n FROM payment ORDER BY n") == [(n,) for n in range(80)]
        await laws_hold(client)


@pytest.mark.long
@pytest.mark.parametrize("how", points([signal.SIGQUIT, signal.SIGINT], signal.SIGQUIT), ids=lambda how: how.name)
async def test_the_database_restarts_under_load_and_each_is_paid_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    monkeypatch.setenv(LEDGER, str(tmp_path / "ledger"))
    with Server() as server:
        account = Account(server.fresh_database())
        async with Engine(account.url, work=True, workflows=FLOWS) as engine:
            await account.run("CREATE TABLE payment (n int PRIMARY KEY, key text)")
            handles = await engine.start_many(payment, [("postgres", n) for n in range(0, 400, 2)])
            for wanted in (50, 200):
                async with asyncio.timeout(LIMIT):
                    while engine.metrics()["steps"] < wanted:
                        await asyncio.sleep(0.01)
                await asyncio.to_thread(server.restart, how)
            await asyncio.gather(*(handle.result(LIMIT) for handle in handles))
            assert await account.run("SELECT n FROM payment ORDER BY n") == [(n,) for n in range(400)]
            await laws_hold(engine)
