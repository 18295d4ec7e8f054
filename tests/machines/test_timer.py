"""The timer of a machine: it is set, replaced, stopped, survives a worker, and comes after the letters that wait."""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from perdure import Engine, Handle, machine, testing
from perdure.errors import CallRefused
from perdure.kernel.checkpoint import parted
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from tests.machines.account import Account, done, rate
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


class Meter(machine.Machine):
    """A meter whose timer's method fails, at once or by a step, and whose ``spoil`` fails beside that."""

    by_step: bool
    reading: int = 0

    @machine.init
    def set_up(self, by_step: bool, seconds: float) -> None:
        self.by_step = by_step
        machine.schedule(seconds)

    @machine.timer
    async def read(self) -> None:
        """Fail."""
        done["read"] += 1
        self.reading = await rate("the bank") if self.by_step else 1 // self.reading

    @machine.call
    def spoil(self) -> None:
        """Fail."""
        raise ValueError("spoilt")

    @machine.repair
    def corrected(self, reading: int) -> None:
        """What a person has read; less than nothing cannot be."""
        self.reading = reading
        if reading < 0:
            raise ValueError("less than nothing")

    @machine.repair
    def put_off(self, seconds: float) -> None:
        """It is read later."""
        self.reading = 1
        machine.schedule(seconds)


async def failed(opened: Open, *, by_step: bool = False) -> tuple[Engine, Handle[Any]]:
    """A meter that could not be read."""
    engine, _ = await opened(work=True)
    handle = await engine.start(Meter.set_up, by_step, 0.05)
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    return engine, handle


@pytest.mark.parametrize("by_step", [False, True], ids=["at once", "by a step"])
@pytest.mark.parametrize("retries", [0, 1])
async def test_a_repair_of_a_failed_timer_method_gives_it_up_and_its_time_counts_no_more(
    opened: Open, by_step: bool, retries: int
) -> None:
    """It ran again right after the repair, and broke the machine anew."""
    engine, handle = await failed(opened, by_step=by_step)
    for _ in range(retries):
        await handle.retry()
        await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN and done["read"] > 1)
    ran = done["read"]
    await handle.repair(Meter.corrected, 7)
    row = await until_row(engine, handle.id, lambda row: b'"reading":7' in (row.state or b"") and row.owner is None)
    assert (row.status, row.error, parted(row.state or b"")[0].due) == (Status.RUNNING, None, None)
    assert done["read"] == ran


async def test_a_repair_that_replaces_one_that_has_failed_gives_the_timer_method_up_too(opened: Open) -> None:
    engine, handle = await failed(opened)
    await handle.repair(Meter.corrected, -1)
    await until_row(engine, handle.id, lambda row: b"less than nothing" in (row.error or b""))
    await handle.repair(Meter.corrected, 7)
    row = await until_row(engine, handle.id, lambda row: b'"reading":7' in (row.state or b"") and row.owner is None)
    assert (row.status, parted(row.state or b"")[0].due, done["read"]) == (Status.RUNNING, None, 1)


async def test_a_repair_of_a_failed_timer_method_may_set_the_time_anew() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Meter.set_up, False, 60)
        await engine.sleep(61)
        await handle.repair(Meter.put_off, 60)
        await engine.sleep(59)
        assert done["read"] == 1
        await engine.sleep(2)
        assert (done["read"], (await handle.status()).status) == (2, Status.RUNNING)


async def test_a_repair_of_another_method_that_has_failed_leaves_the_time() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Meter.set_up, False, 60)
        with pytest.raises(CallRefused, match="spoilt"):
            await handle.call(Meter.spoil)
        await handle.repair(Meter.corrected, 1)
        await engine.sleep(50)
        assert done["read"] == 0
        await engine.sleep(11)
        assert (done["read"], (await handle.status()).status) == (1, Status.RUNNING)


async def test_a_repair_leaves_the_time_that_has_come_while_the_machine_was_broken() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Meter.set_up, False, 60)
        with pytest.raises(CallRefused, match="spoilt"):
            await handle.call(Meter.spoil)
        await engine.sleep(120)
        assert done["read"] == 0
        await handle.repair(Meter.corrected, 1)
        await engine.sleep(1)
        assert (done["read"], (await handle.status()).status) == (1, Status.RUNNING)
