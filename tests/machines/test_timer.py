"""The timer of a machine: it is set, replaced, stopped, survives a worker, and comes after the letters that wait."""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import UUID

import asyncpg

from perdure import Handle, testing
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from tests.machines.account import Account
from tests.runtime.conftest import LIMIT, Open, until_row


async def months(handle: Handle[Any]) -> int:
    """How often the timer's method has run."""
    return int((await handle.status()).state["months"])


async def test_a_timer_runs_its_method_again_and_again_until_that_stops() -> None:
    async with testing.engine() as engine:
        ann = await engine.start(Account.opened, "Ann", 100)
        assert await ann.call(Account.deposit, 5) == 105
        await ann.signal(Account.save_up, 3600)
        await engine.sleep(3601)
        assert await months(ann) == 1
        await engine.sleep(86400)
        assert await months(ann) == 3
        assert await ann.call(Account.deposit, 0) == 108


async def test_a_call_leaves_the_time_and_an_action_replaces_it() -> None:
    async with testing.engine() as engine:
        ann, ben = await engine.start(Account.opened, "Ann"), await engine.start(Account.opened, "Ben")
        for handle in (ann, ben):
            await handle.signal(Account.save_up, 3600)
        await engine.sleep(1800)
        assert await ann.call(Account.deposit, 1) == 1
        await ben.signal(Account.save_up, 3600)
        await engine.sleep(1790)
        assert [await months(ann), await ben.call(Account.deposit, 1)] == [0, 1]
        await engine.sleep(20)
        assert [await months(ann), await months(ben)] == [1, 0]
        await engine.sleep(1800)
        assert await months(ben) == 1


async def test_the_time_of_a_machine_that_is_suspended_counts_no_more() -> None:
    async with testing.engine() as engine:
        ann = await engine.start(Account.opened, "Ann")
        await ann.signal(Account.save_up, 3600)
        await ann.signal(Account.rest)
        await engine.sleep(86400)
        assert await ann.call(Account.deposit, 1) == 1
        assert await months(ann) == 0


async def test_the_clock_stands_while_a_call_is_answered() -> None:
    async with testing.engine() as engine:
        ann = await engine.start(Account.opened, "Ann")
        await ann.signal(Account.save_up, 86400)
        for n in range(20):
            assert await ann.call(Account.deposit, 1) == n + 1
        assert await months(ann) == 0


async def test_a_timer_survives_the_worker_and_a_suspended_one_is_gone(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann, ben = await engine.start(Account.opened, "Ann"), await engine.start(Account.opened, "Ben")
    for handle in (ann, ben):
        await handle.signal(Account.save_up, 0.05)
    await ben.signal(Account.rest)
    await engine.close(0)
    again, _ = await opened(work=True)
    ann, ben = again.process(ann.id), again.process(ben.id)
    await until_row(again, ann.id, lambda row: b'"months":1' in (row.state or b""))
    assert b'"months":0' in ((await again.row(ben.id)).state or b"")
    assert (await again.row(ann.id)).status is Status.RUNNING
    await ann.signal(Account.close)
    assert await ann.result(LIMIT) == 1


async def recorded_an_hour_ahead(url: str, id: str) -> None:
    """As if the worker that wrote this history had had a clock that was an hour ahead."""
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        raw.execute("UPDATE event SET at = at + 3600 * 1000000 WHERE process = ?", [id_bytes(id)])
        raw.close()
    else:
        outside = await asyncpg.connect(url)
        await outside.execute("UPDATE perdure.event SET at = at + interval '1 hour' WHERE process = $1", UUID(id))
        await outside.close()


async def test_time_never_runs_back_behind_turns_that_need_not_be_replayed(opened: Open, store_url: str) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 1) == 1
    await engine.close(0)
    await recorded_an_hour_ahead(store_url, ann.id)
    again, _ = await opened(work=True)
    ann = again.process(ann.id)
    assert await ann.call(Account.deposit, 1) == 2
    times = [event.at for event in await ann.history()]
    assert times == sorted(times)
