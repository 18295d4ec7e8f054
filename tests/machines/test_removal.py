"""A machine that removes itself, now or later: its last answer is heard, nothing is left, a later action counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Engine, Handle, limits, machine, testing, workflow
from perdure.cli import event_text
from perdure.errors import CallUnanswered, InvalidInput, ProcessNotFound
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.machines.account import book, waits
from tests.runtime.conftest import LIMIT, Open, until_gone, until_row

HOUR = 3600


class Visit(machine.Machine):
    """A guest who leaves."""

    steps: int = 0
    ticks: int = 0

    @machine.init
    def came(self) -> None:
        pass

    @machine.call
    async def leave(self) -> int:
        """Go at once."""
        self.steps += 1
        machine.remove()
        await book("left")
        return self.steps

    @machine.call
    def leave_in(self, seconds: float) -> int:
        """Go later."""
        self.steps += 1
        machine.schedule_removal(seconds)
        return self.steps

    @machine.call
    def remind_in(self, seconds: float) -> None:
        """A timer in its place."""
        machine.schedule(seconds)

    @machine.call
    def stay(self) -> None:
        """No timer at all."""
        machine.suspend()

    @machine.call
    def step(self) -> int:
        """Nothing that concerns the time."""
        self.steps += 1
        return self.steps

    @machine.call
    async def slow(self, gate: str) -> None:
        """Wait, and leave then."""
        await waits(gate)
        machine.remove()

    @machine.call
    def refuses(self) -> None:
        """Leave, and not."""
        machine.remove()
        raise machine.Refusal("no")

    @machine.call
    def both(self) -> None:
        """Two actions."""
        machine.schedule_removal(1)
        machine.remove()

    @machine.timer
    def tick(self) -> None:
        """Once, and gone some time after."""
        self.ticks += 1
        machine.schedule_removal(HOUR)


@workflow
async def host() -> Any:
    """Has a guest."""
    return await Visit.came.child()


async def gone(engine: Engine, handle: Handle[Any]) -> bool:
    """Whether nothing of it is left."""
    try:
        await engine.row(handle.id)
    except ProcessNotFound:
        store = engine.store
        assert not await store.history(handle.id_bytes, 1) and not await store.messages([(handle.id_bytes, 0)])
        return True
    return False


async def changes(handle: Handle[Any]) -> list[str]:
    """What the history says of its timers."""
    found = [one for one in await handle.history() if one.type is EventType.TIMER_CHANGED]
    return [f"{event_text.what(one)} | {event_text.detail(one, {})}" for one in found]


async def test_a_machine_that_removes_itself_answers_first_and_gives_its_key_back() -> None:
    async with testing.engine() as engine:
        guest = await engine.start(Visit.came.options(key="Ann"))
        assert await guest.call(Visit.leave) == 1
        assert not await gone(engine, guest)
        await engine.sleep(limits.REMOVAL_SECONDS + 1)
        assert await gone(engine, guest)
        with pytest.raises(ProcessNotFound):
            await guest.call(Visit.step)
        again = await engine.start(Visit.came.options(key="Ann"))
        assert again.created
        assert await again.call(Visit.step) == 1


async def test_what_waits_for_a_machine_that_goes_hears_that_it_was_removed(opened: Open, monkeypatch: Any) -> None:
    monkeypatch.setattr("perdure.limits.REMOVAL_SECONDS", 0.3)
    engine, _ = await opened(work=True)
    client, _ = await opened()
    guest = await engine.start(Visit.came)
    assert await client.process(guest.id).call(Visit.leave) == 1
    late = [engine.process(guest.id), client.process(guest.id)]
    calls = [asyncio.ensure_future(one.call(Visit.step)) for one in late]
    for call in calls:
        with pytest.raises(CallUnanswered, match="was removed"):
            await asyncio.wait_for(call, LIMIT)
    assert await gone(client, guest)


async def test_a_scheduled_removal_comes_at_its_time_and_calls_leave_it() -> None:
    async with testing.engine() as engine:
        guest = await engine.start(Visit.came)
        assert await guest.call(Visit.leave_in, HOUR) == 1
        await engine.sleep(HOUR - 2)
        assert await guest.call(Visit.step) == 2
        await engine.sleep(limits.REMOVAL_SECONDS + 10)
        assert await gone(engine, guest)


async def test_a_removal_is_replaced_and_cancelled_as_a_timer_is_and_the_history_says_so() -> None:
    async with testing.engine() as engine:
        guest = await engine.start(Visit.came)
        await guest.call(Visit.leave_in, HOUR)
        await guest.call(Visit.leave_in, 2 * HOUR)
        await guest.call(Visit.remind_in, 3 * HOUR)
        await guest.call(Visit.leave_in, HOUR)
        await guest.call(Visit.stay)
        await engine.sleep(4 * HOUR)
        assert (await guest.status()).state == {"steps": 3, "ticks": 0}
        told = await changes(guest)
        assert [line.split(" | ")[0] for line in told] == [
            f"timer changed: {name}" for name in ("leave_in", "remind_in", "leave_in", "stay")
        ]
        assert "removal due " in told[0] and ": replaced by removal due " in told[0]
        assert ": replaced by timer due " in told[1] and told[2].split(" | ")[1].startswith("timer due ")
        assert told[3].endswith(": cancelled")
        await guest.call(Visit.remind_in, HOUR)
        await engine.sleep(2 * HOUR + limits.REMOVAL_SECONDS + 1)
        assert await gone(engine, guest)


async def test_a_method_takes_one_action_and_a_refused_one_takes_none() -> None:
    async with testing.engine() as engine:
        guest = await engine.start(Visit.came)
        with pytest.raises(Exception, match="refuses"):
            await guest.call(Visit.refuses)
        await engine.sleep(HOUR)
        assert await guest.call(Visit.step) == 1
        with pytest.raises(Exception, match=r"machine\.remove\(\) after machine\.schedule_removal\(\)"):
            await guest.call(Visit.both)
        assert (await engine.row(guest.id)).status is Status.BROKEN


async def test_a_removal_that_no_number_of_seconds_gives_is_refused() -> None:
    async with testing.engine() as engine:
        guest = await engine.start(Visit.came)
        with pytest.raises(Exception, match=r"machine\.schedule_removal\(-1\.0\): give seconds"):
            await guest.call(Visit.leave_in, -1)
        assert InvalidInput.__name__ in ((await engine.row(guest.id)).error or b"").decode()


async def test_a_removal_survives_the_worker(opened: Open, monkeypatch: Any) -> None:
    monkeypatch.setattr("perdure.limits.REMOVAL_SECONDS", 0.05)
    engine, _ = await opened(work=True)
    now, later = await engine.start(Visit.came), await engine.start(Visit.came)
    await later.call(Visit.leave_in, 0.05)
    monkeypatch.setattr("perdure.limits.REMOVAL_SECONDS", 0.2)
    await now.call(Visit.leave)
    await engine.close(0)
    again, _ = await opened(work=True)
    for handle in (now, later):
        await until_gone(again, handle.id)
        assert await gone(again, handle)


async def test_who_waits_for_the_end_of_a_machine_that_goes_hears_of_it(opened: Open, monkeypatch: Any) -> None:
    monkeypatch.setattr("perdure.limits.REMOVAL_SECONDS", 0.05)
    engine, _ = await opened(work=True)
    above = await engine.start(host)
    await until_row(engine, above.id, lambda row: row.awaiting)
    [row] = await engine.store.search(Search(kind="Visit"))
    guest = engine.handle_of(row)
    assert await guest.call(Visit.leave) == 1
    assert await above.result(LIMIT) is None
    assert await gone(engine, guest)


async def test_a_machine_that_waits_for_its_removal_folds_its_history(opened: Open, monkeypatch: Any) -> None:
    monkeypatch.setattr("perdure.limits.REMOVAL_SECONDS", 0.3)
    monkeypatch.setattr("perdure.limits.FOLDED_RECORDS", 6)
    engine, _ = await opened(work=True)
    guest = await engine.start(Visit.came)
    for n in range(9):
        assert await guest.call(Visit.step) == n + 1
    assert await guest.call(Visit.leave) == 10
    assert (await engine.row(guest.id)).run > 2
    await engine.close(0)
    again, _ = await opened(work=True)
    await until_gone(again, guest.id)
    assert await gone(again, guest)
