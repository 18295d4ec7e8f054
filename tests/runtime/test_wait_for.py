"""``asyncio.wait_for`` asks at the same places with every Python: a new one fits the histories of an old one.

A process that had passed one before goes on in the form of the Python that recorded it.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import wait_for as bare_wait_for
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import DefinitionError
from perdure.kernel.event import EventType
from perdure.runtime.options import WorkerOptions
from perdure.turns.loop import TurnLoop
from perdure.turns.patches import Patches
from perdure.turns.sandbox import static_check
from tests.authoring.life import BIRTH, ID, SEED, Life
from tests.runtime.conftest import LIMIT, Open

A_TASK_OF_ITS_OWN = sys.version_info < (3, 12)
"""Whether this Python's own ``wait_for`` makes a task of a coroutine."""


@step
async def charge(order: str) -> str:
    return f"receipt {order}"


async def paying(order: str) -> str:
    return await charge(order)


@workflow
async def bounded(order: str) -> str:
    receipt = await asyncio.wait_for(paying(order), 3600)
    return await receive("delivered", str) + receipt


@workflow
async def in_no_time() -> list[Any]:
    found: list[Any] = [await asyncio.wait_for(paying("A-1"), None)]
    for seconds in (0, -1):
        try:
            found.append(await asyncio.wait_for(paying("A-2"), seconds))
        except TimeoutError:
            found.append("late")
    return found


def test_a_coroutine_that_is_waited_for_asks_at_the_places_of_who_waits() -> None:
    life = Life(bounded, ("A-1",))
    assert [ask[:2] for ask in life.seen[0].asked] == [("charge", "1")]
    life.finish_step("charge", after=1)
    life.signal("delivered", "yes: ")
    assert life.seen[-1].outcome == '"yes: receipt A-1"'
    life.check_replays()


def test_no_limit_and_one_that_is_over_are_as_with_every_python_and_leave_no_mark() -> None:
    life = Life(in_no_time)
    life.finish_step("charge", after=1)
    assert life.seen[-1].outcome == '["receipt A-1","late","late"]'
    assert life.patches == {}
    life.check_replays()


def test_a_process_that_has_passed_one_before_goes_on_as_its_python_does_it() -> None:
    loop = TurnLoop(ID, SEED)
    loop.begin(bounded.function, ("A-1",))
    loop.begin_replay(frozenset(), 0)
    loop.run(BIRTH)
    assert list(loop.open) == [("charge", ".1:1" if A_TASK_OF_ITS_OWN else "1")]
    loop.evict()


@pytest.mark.parametrize("before", [False, True], ids=["from now on", "recorded before"])
async def test_another_worker_finds_the_steps_of_a_wait(
    opened: Open, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=[bounded], options=WorkerOptions(cached=0))
    with monkeypatch.context() as old:
        if before:
            old.setattr(Patches, "decide", lambda *told: False)
        handle = await engine.start(bounded, "A-1")
        async with asyncio.timeout(LIMIT):
            while not (history := await handle.history()) or history[-1].type is not EventType.STEP_COMPLETED:
                await asyncio.sleep(0)
    await handle.signal("delivered", "yes: ")
    assert await handle.result(LIMIT) == "yes: receipt A-1"
    seen = [(event.type, event.name, event.place) for event in await handle.history()]
    assert ((EventType.PATCHED, " wait_for", "") in seen) is not before
    place = ".1:1" if before and A_TASK_OF_ITS_OWN else "1"
    assert (EventType.STEP_COMPLETED, "charge", place) in seen


@pytest.mark.skipif(not A_TASK_OF_ITS_OWN, reason="later ones do in a turn what they do elsewhere")
def test_one_that_no_turn_can_answer_is_refused_where_python_would_do_it_in_another_way() -> None:
    async def by_its_name() -> str:
        return await bare_wait_for(paying("A-1"), 5)

    with pytest.raises(DefinitionError, match=r"asyncio\.wait_for\(\) without naming its module"):
        static_check.check(by_its_name, "workflow x")
