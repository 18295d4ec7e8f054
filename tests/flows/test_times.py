"""Timeouts of states, of stretches between two states, and of actions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import flow, testing
from perdure.errors import ProcessBroken
from tests.flows.transfer import done, note, position, waits
from tests.runtime.conftest import LIMIT, Open, until


class Journey(flow.Flow):
    """A way over several states, with a time for the road, and one for the whole."""

    warned: int = 0

    home = flow.State()
    road = flow.State(timeout=60)
    inn = flow.State()
    town = flow.State(terminal=True)
    lost = flow.State(terminal=True)

    travelling = flow.Stretch(road, town, timeout=100)

    @flow.init
    def born(self) -> None:
        pass

    @flow.event
    def left(self) -> None:
        pass

    @flow.event
    def tired(self) -> None:
        pass

    @flow.event
    def rested(self) -> None:
        pass

    @flow.event
    def arrived(self) -> None:
        pass

    @flow.action
    async def warn(self) -> None:
        self.warned += 1

    behaviour = flow.table(
        flow.on(born).to(home),
        flow.on(left, in_=home).to(road),
        flow.on(tired, in_=road).to(inn),
        flow.on(rested).to(road),
        flow.on(arrived).to(town),
        flow.on(road.timed_out, in_=road).to(lost),
        flow.on(travelling.timed_out).do(warn),
    )


async def test_a_state_that_is_left_has_no_timeout_and_one_that_is_entered_again_has_a_new_one() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Journey.born)
        assert await handle.call(Journey.left) == "road"
        await engine.sleep(50)
        assert await handle.call(Journey.tired) == "inn"
        await engine.sleep(20)
        assert await handle.call(Journey.rested) == "road"
        await engine.sleep(50)
        stands = await position(handle)
        assert (stands["state"], stands["passed_over"]) == ("road", 0)
        await engine.sleep(11)
        assert await handle.result() == "lost"


async def test_a_stretch_times_out_once_whatever_states_are_passed_on_it() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Journey.born)
        assert await handle.call(Journey.left) == "road"
        for _ in range(4):
            await engine.sleep(20)
            await handle.call(Journey.tired)
            await handle.call(Journey.rested)
        assert (await handle.status()).state["warned"] == 0
        await engine.sleep(25)
        assert (await handle.status()).state["warned"] == 1
        await handle.call(Journey.tired)
        await engine.sleep(1000)
        assert (await handle.status()).state["warned"] == 1
        assert await handle.call(Journey.arrived) == "town"


async def test_a_stretch_that_was_gone_in_time_does_not_time_out() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Journey.born)
        await handle.call(Journey.left)
        assert await handle.call(Journey.arrived) == "town"
        assert await handle.result() == "town"
        assert (await handle.status()).state["warned"] == 0


async def test_a_stretch_times_out_once_also_across_a_restart(tmp_path: Path) -> None:
    async with testing.engine(folder=tmp_path) as engine:
        handle = await engine.start(Journey.born)
        await handle.call(Journey.left)
        await handle.call(Journey.tired)
        later = engine.now() + timedelta(seconds=101)
    for _ in range(2):
        async with testing.engine(folder=tmp_path, begins=later) as engine:
            await engine.sleep(200)
            assert (await engine.process(handle.id).status()).state["warned"] == 1
            later = engine.now()


class Brief(flow.Flow):
    """Each of its actions takes too long: the first one for its state, the second one for itself."""

    patient = flow.State(timeout=0.05)
    hasty = flow.State()
    over = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.action
    async def dawdle(self) -> None:
        await waits("dawdle")

    @flow.action(timeout=0.05)
    async def linger(self) -> None:
        await waits("linger")

    @flow.action
    async def after(self) -> None:
        await note("after")

    behaviour = flow.table(
        flow.on(begun).to(patient).do(dawdle, after),
        flow.on(patient.timed_out, in_=patient).to(hasty).do(linger, after),
        flow.on(linger.timed_out, in_=hasty).to(over),
    )


async def test_an_action_is_cancelled_when_the_time_of_its_state_or_its_own_is_over(opened: Open) -> None:
    """With its state's time the other actions of the row are left out, with its own they are not."""
    engine, _ = await opened(work=True)
    handle = await engine.start(Brief.begun)
    assert await handle.result(LIMIT) == "over"
    assert (await position(handle))["visit"] == 3
    assert (done["dawdle"], done["linger"], done["after"]) == (0, 0, 1)


async def test_another_worker_does_an_interrupted_action_again_and_its_time_goes_on(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Brief.begun)
    await until(lambda: done["began dawdle"])
    await engine.close(0)
    again, _ = await opened(work=True)
    assert await again.process(handle.id).result(LIMIT) == "over"
    assert (done["dawdle"], done["linger"], done["after"]) == (0, 0, 1)


async def test_an_error_that_is_a_timeout_of_the_code_itself_is_not_taken_for_the_flow_s() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Impatient.begun)
        with pytest.raises(ProcessBroken, match=r"in Impatient\.wait"):
            await handle.result()


class Impatient(flow.Flow):
    """Its action has a timeout of its own making."""

    waiting = flow.State(timeout=3600)
    over = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.action
    async def wait(self) -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(2)

    behaviour = flow.table(
        flow.on(begun).to(waiting).do(wait),
        flow.on(waiting.timed_out, in_=waiting).to(over),
    )
