"""A machine that is called often: nothing is read for the answers that our own worker gives."""

from __future__ import annotations

import asyncio

import pytest

from perdure import limits, machine
from tests.machines.account import Account
from tests.runtime.conftest import Open, until_row


async def test_the_answers_of_our_own_worker_are_told_and_not_looked_up(opened: Open, store_url: str) -> None:
    engine, store = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 1) == 1
    store.calls.clear()
    sums = await asyncio.gather(*(ann.call(Account.deposit, 1) for _ in range(30)))
    assert sorted(sums) == list(range(2, 32))
    reads = [name for name, _ in store.calls].count("history")
    # PostgreSQL may notify us of a commit before it has answered it: then the caller looks at once.
    assert reads == 0 if store_url.startswith("sqlite") else reads <= 30


class Alarm(machine.Machine):
    """A machine with a timer that is far away."""

    rings: int = 0

    @machine.init
    def made(self) -> None:
        machine.schedule(100_000)

    @machine.call
    def press(self) -> int:
        self.rings += 1
        return self.rings

    @machine.timer
    def ring(self) -> None:
        self.rings = 0


async def test_a_machine_that_was_called_often_is_let_go_after_a_while_however_far_its_timer_is(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MACHINE_HOLD_SECONDS", 0.2)
    engine, _ = await opened(work=True, workflows=[Alarm.made])
    handle = await engine.start(Alarm.made)
    for number in range(1, 6):
        assert await handle.call(Alarm.press) == number
    row = await until_row(engine, handle.id, lambda row: row.owner is None)
    assert row.due_at - row.created_at == pytest.approx(100_000_000_000, abs=10_000_000)
