"""A method that the class of a machine does not have: a call is refused, a signal waits for a class that has it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure import machine
from perdure.errors import CallRefused, InvalidInput
from perdure.kernel.event import EventType
from perdure.kernel.soundness import unsound
from tests.machines.account import Account, done, gates
from tests.runtime.conftest import LIMIT, Open, until


async def test_who_knows_the_class_is_told_before_anything_is_sent(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await engine.start(Account.opened, "Ann")
    with pytest.raises(InvalidInput, match="Account has no method 'deposits'"):
        await ann.call("deposits", [5])
    with pytest.raises(InvalidInput, match="no method 'interest'"):
        await ann.signal("interest")
    assert (await engine.row(ann.id)).inbox == 0


async def test_the_machine_refuses_a_call_that_it_does_not_know(opened: Open) -> None:
    engine, _ = await opened(work=True)
    client, store = await opened()
    ann = client.process((await engine.start(Account.opened, "Ann")).id)
    for _ in range(2):
        with pytest.raises(CallRefused, match="no method 'deposits'") as refused:
            await ann.call("deposits", [5], key="t-1")
        assert refused.value.type == "NoSuchMethod"
    assert await ann.call("deposit", [5]) == 5
    await ann.hold()
    row, history = await client.row(ann.id), await ann.history()
    assert [event.type for event in history].count(EventType.CALL_REFUSED) == 1
    assert unsound(row, history, await store.messages([(row.id, 0)]), await store.now()) == []


async def test_a_busy_machine_refuses_it_at_once_and_another_worker_does_not_answer_again(opened: Open) -> None:
    engine, _ = await opened(work=True)
    client, _ = await opened()
    ann = client.process((await engine.start(Account.opened, "Ann")).id)
    slow = asyncio.create_task(ann.call("slow", ["a"]))
    await until(lambda: done["began a"])
    with pytest.raises(CallRefused, match="no method 'deposits'"):
        await ann.call("deposits", [5], key="t-1")
    await engine.close(0)
    gates["a"].set()
    await opened(work=True)
    assert await asyncio.wait_for(slow, LIMIT) == "a"
    with pytest.raises(CallRefused, match="no method 'deposits'"):
        await ann.call("deposits", [5], key="t-1")
    assert await ann.call("history", []) == ["a"]


async def test_a_signal_waits_for_a_class_that_has_the_method_and_is_told_once(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    class Plain(machine.Machine, name="bell", version="1"):
        rung: int = 0

        @machine.init
        def hung(self) -> None:
            pass

        @machine.call
        def told(self) -> int:
            return self.rung

    class Ringing(machine.Machine, name="bell", version="1"):
        rung: int = 0

        @machine.init
        def hung(self) -> None:
            pass

        @machine.call
        def told(self) -> int:
            return self.rung

        @machine.signal
        def ring(self, times: int) -> None:
            self.rung += times

    client, _ = await opened()
    engine, _ = await opened(work=True, workflows=[Plain.hung])
    bell = client.process((await engine.start(Plain.hung)).id)
    with caplog.at_level(logging.WARNING, logger="perdure.process"):
        for times in (1, 2):
            await bell.signal("ring", [times])
        assert await bell.call("told", []) == 0
    told = [line.getMessage() for line in caplog.records if "no method 'ring'" in line.getMessage()]
    assert len(told) == 1
    assert bell.id in told[0]
    await engine.close(0)
    await opened(work=True, workflows=[Ringing.hung])
    assert await bell.call("told", []) == 3


async def test_a_method_that_an_upgrade_has_removed_is_refused_afterwards(opened: Open) -> None:
    class Old(machine.Machine, name="lamp", version="1"):
        @machine.init
        def lit(self) -> None:
            pass

        @machine.call
        def dim(self) -> str:
            return "dimmed"

    class New(machine.Machine, name="lamp", version="1"):
        @machine.init
        def lit(self) -> None:
            pass

        @machine.call
        def off(self) -> str:
            return "off"

    client, _ = await opened()
    engine, _ = await opened(work=True, workflows=[Old.lit])
    lamp = client.process((await engine.start(Old.lit)).id)
    assert await lamp.call("dim", []) == "dimmed"
    await engine.close(0)
    await opened(work=True, workflows=[New.lit])
    with pytest.raises(CallRefused, match="no method 'dim'"):
        await lamp.call("dim", [])
    assert await lamp.call("off", []) == "off"
